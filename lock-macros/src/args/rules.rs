//! Which options exclude each other, and the bounds of durations that are known now.

use std::time::Duration;

use proc_macro2::Span;
use syn::Error;

use super::{Action, Arg, Args, RenewArg};
use crate::duration::DurationArg;

/// The shortest lease that a watchdog can keep alive, as `lock_core::MIN_RENEWED_TTL`.
const MIN_RENEWED_TTL: Duration = Duration::from_secs(1);
/// The shortest lease that is never renewed, as `lock_core::MIN_FIXED_TTL`.
const MIN_FIXED_TTL: Duration = Duration::from_millis(50);
/// The longest lease, as `lock_core::MAX_TTL`.
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the annotated function is, as far as options depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionForm {
    Asynchronous,
    Synchronous,
}

impl Args {
    /// Collects what no single option shows.
    pub(crate) fn check(&self, form: FunctionForm) -> Vec<Error> {
        let mut errors = Vec::new();
        self.check_conflicts(form, &mut errors);
        self.check_bounds(&mut errors);
        errors
    }

    fn check_conflicts(&self, form: FunctionForm, errors: &mut Vec<Error>) {
        let mut conflict = |left: Option<Place>, right: Option<Place>, sentence: &str| {
            if let (Some(left), Some(right)) = (left, right) {
                let later = if left.order > right.order { left } else { right };
                errors.push(Error::new(later.name, sentence));
            }
        };
        let (guard, when) = (place(&self.guard), place(&self.when));
        let unlocked = action(&self.on_error, |action| matches!(action, Action::RunUnlocked));
        conflict(place(&self.key), place(&self.keys), "key and keys exclude each other; put every key into keys");
        conflict(guard, when, "guard names the lock, but with when = … there may be none; drop one of them");
        conflict(
            guard,
            unlocked,
            "guard names the lock, but on_error = \"run_unlocked\" runs without one; drop one of them",
        );
        let fixed = self.renew.as_ref().filter(|renew| matches!(renew.value, RenewArg::Off));
        let fixed = fixed.map(|renew| Place { name: renew.name, order: renew.order });
        conflict(
            place(&self.max_hold),
            fixed,
            "max_hold ends the renewal, but renew = false never renews; the lock ends with its ttl",
        );
        let all_handled = [&self.on_busy, &self.on_error, &self.on_lost].into_iter().all(|option| {
            option
                .as_ref()
                .is_some_and(|option| !matches!(option.value, Action::Error | Action::Cancel | Action::RunUnlocked))
        });
        if all_handled {
            conflict(
                place(&self.map_err),
                place(&self.on_lost),
                "map_err maps the errors that are returned, but on_busy, on_error and on_lost return none; drop map_err",
            );
        }
        if form == FunctionForm::Synchronous
            && let Some(place) = action(&self.on_lost, |action| matches!(action, Action::Cancel))
        {
            errors.push(Error::new(
                place.name,
                "on_lost = \"cancel\" needs an async fn: a synchronous body cannot be stopped from outside. Write \"error\" \
                 (the default), \"ignore\", \"skip\" or a closure",
            ));
        }
    }

    fn check_bounds(&self, errors: &mut Vec<Error>) {
        let mut refuse = |at: &DurationArg, sentence: String| errors.push(Error::new(at.span(), sentence));
        let ttl = self.ttl.as_ref().and_then(|ttl| Some((&ttl.value, ttl.value.known()?)));
        let renewed = !matches!(&self.renew, Some(Arg { value: RenewArg::Off, .. }));
        if let Some((at, ttl)) = ttl {
            if ttl > MAX_TTL {
                refuse(at, format!("ttl {} is over the limit of 30d; the watchdog renews a shorter one", show(ttl)));
            } else if renewed && ttl < MIN_RENEWED_TTL {
                refuse(
                    at,
                    format!(
                        "ttl {} leaves {} ms between renewals; use at least \"1s\", or renew = false",
                        show(ttl),
                        ttl.as_millis() / 3
                    ),
                );
            } else if ttl < MIN_FIXED_TTL {
                refuse(at, format!("ttl {} is too short to hold anything; use at least \"50ms\"", show(ttl)));
            }
        }
        if let Some(Arg { value: RenewArg::Every(at), .. }) = &self.renew
            && let Some(interval) = at.known()
        {
            if interval.is_zero() {
                refuse(
                    at,
                    "a renewal interval of zero would never pause; a third of the ttl is the default".to_owned(),
                );
            } else if let Some((_, ttl)) = ttl
                && interval > ttl / 2
            {
                refuse(
                    at,
                    format!(
                        "renewing every {} leaves no second chance within a ttl of {}; use at most half of the ttl",
                        show(interval),
                        show(ttl)
                    ),
                );
            }
        }
        let known = |option: &Option<Arg<DurationArg>>| option.as_ref().and_then(|option| option.value.known());
        if let (Some(option), Some(limit)) = (&self.max_hold, known(&self.max_hold)) {
            if limit.is_zero() {
                refuse(&option.value, "max_hold of zero would lose every lock at once; leave it out".to_owned());
            } else if let Some(least) = known(&self.min_hold)
                && limit < least
            {
                refuse(&option.value, format!("max_hold {} is shorter than min_hold {}", show(limit), show(least)));
            }
        }
        if let (Some(option), Some(least), Some((_, ttl))) = (&self.min_hold, known(&self.min_hold), ttl)
            && least > ttl
        {
            let (least, ttl) = (show(least), show(ttl));
            refuse(
                &option.value,
                format!("min_hold {least} is longer than the ttl {ttl} that carries it; raise the ttl"),
            );
        }
        if let (Some(option), Some(true)) = (&self.stuck_after, known(&self.stuck_after).map(|limit| limit.is_zero())) {
            refuse(&option.value, "stuck_after of zero would call every lock stuck".to_owned());
        }
    }
}

/// Where an argument stands.
#[derive(Clone, Copy)]
struct Place {
    name: Span,
    order: usize,
}

fn place<T>(option: &Option<Arg<T>>) -> Option<Place> {
    option.as_ref().map(|option| Place { name: option.name, order: option.order })
}

fn action(option: &Option<Arg<Action>>, matches: impl Fn(&Action) -> bool) -> Option<Place> {
    place(option).filter(|_| option.as_ref().is_some_and(|option| matches(&option.value)))
}

/// Spells a duration as the attribute takes it.
pub(crate) fn show(value: Duration) -> String {
    let mut millis = value.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if millis >= size {
            text.push_str(&format!("{}{unit}", millis / size));
            millis %= size;
        }
    }
    text
}
