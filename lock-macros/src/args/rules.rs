//! Checks which options exclude each other, and the bounds of durations that are known at compile time.

use std::time::Duration;

use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit};

use super::values::{ACTIONS, DURABILITY, DurabilityArg, WAIT, WaitArg};
use super::{Action, Arg, Args, RenewArg, clash};
use crate::duration::DurationArg;
use crate::template::Names;

/// The shortest lease that a watchdog can renew in time, like `lock_core::MIN_RENEWED_TTL`.
const MIN_RENEWED_TTL: Duration = Duration::from_secs(1);
/// The shortest lease that is never renewed, like `lock_core::store::MIN_FIXED_TTL`.
const MIN_FIXED_TTL: Duration = Duration::from_millis(50);
/// The shortest period of a job, like in `lock_core`.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// The shortest renewal interval, like `lock_core::store::MIN_RENEW_INTERVAL`.
const MIN_RENEW_INTERVAL: Duration = Duration::from_millis(10);
/// The most permits, like in `lock_core`.
const MAX_PERMITS: u64 = 1_000_000;
/// The longest lease, like `lock_core::MAX_TTL`.
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The form of the annotated function, as far as options depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionForm {
    Asynchronous,
    Synchronous,
}

impl Args {
    /// Collects mistakes that no single option shows.
    pub(crate) fn check(&self, form: FunctionForm) -> Vec<Error> {
        let mut errors = Vec::new();
        self.check_conflicts(form, &mut errors);
        self.check_bounds(&mut errors);
        self.check_permits(&mut errors);
        errors
    }

    /// Reports keywords without their quotes. A parameter may have the same name.
    pub(crate) fn unquoted(&self, names: &Names) -> Vec<Error> {
        let wait = self.wait.as_ref().and_then(|option| match &option.value {
            WaitArg::Expr(expr) => Some(("wait", WAIT, expr)),
            _ => None,
        });
        let durability = self.durability.as_ref().and_then(|option| match &option.value {
            DurabilityArg::Expr(expr) => Some(("durability", DURABILITY, expr)),
            _ => None,
        });
        let refused = self.on_refused.as_ref().map(|option| option.order);
        let actions = [
            ("on_busy", &self.on_busy),
            ("on_error", &self.on_error),
            ("on_lost", &self.on_lost),
            ("on_refused", &self.on_refused),
        ];
        let actions = actions.into_iter().filter_map(|(name, option)| match option {
            // A mistake in `on_refused` is reported once, although it sets three options.
            Some(option) if name != "on_refused" && Some(option.order) == refused => None,
            Some(Arg { value: Action::Path(expr), .. }) => Some((name, ACTIONS, expr)),
            _ => None,
        });
        let unquoted = wait.into_iter().chain(durability).chain(actions).filter_map(|(option, words, expr)| {
            let Expr::Path(path) = &**expr else { return None };
            let name = path.path.get_ident()?.to_string();
            (words.contains(&name.as_str()) && !names.binds(&name)).then(|| {
                Error::new(
                    expr.span(),
                    format!(
                        "this word needs quotes: write {option} = \"{name}\", or {option} = self::{name} for that \
                         name in your program"
                    ),
                )
            })
        });
        unquoted.collect()
    }

    fn check_conflicts(&self, form: FunctionForm, errors: &mut Vec<Error>) {
        errors.extend(self.conflicts());
        self.check_job(errors);
        // A value must not hide a mistake in the program. A closure sees the error.
        let closure = |option: &Option<Arg<Action>>| {
            option.as_ref().is_some_and(|option| matches!(option.value, Action::Handler(_)))
        };
        if closure(&self.on_error)
            && [&self.on_busy, &self.on_lost]
                .into_iter()
                .flatten()
                .filter(|option| !option.value.returns_error())
                .count()
                == 2
        {
            errors.extend(clash(
                &self.map_err,
                self.on_lost.as_ref(),
                "map_err maps the errors that are returned, but on_busy, on_error and on_lost return none; drop map_err",
            ));
        }
        if form == FunctionForm::Synchronous
            && let Some(on_lost) = &self.on_lost
            && matches!(on_lost.value, Action::Cancel)
        {
            errors.push(Error::new(
                on_lost.name,
                "on_lost = \"cancel\" needs an async fn: a synchronous body cannot be stopped from outside. Write \"error\" \
                 (the default), \"ignore\", \"skip\", a value or a closure",
            ));
        }
    }

    fn check_permits(&self, errors: &mut Vec<Error>) {
        let number = |option: &Option<Arg<Expr>>| match option.as_ref().map(|option| &option.value) {
            Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) => number.base10_parse::<u64>().ok(),
            _ => None,
        };
        let (permits, weight) = (number(&self.permits), number(&self.weight));
        if let (Some(option), Some(0)) = (&self.permits, permits) {
            errors.push(Error::new(
                option.value.span(),
                "a semaphore without permits lets nobody in; give it at least 1",
            ));
        }
        if let Some(option) = &self.permits
            && permits.is_some_and(|permits| permits > MAX_PERMITS)
        {
            errors.push(Error::new(
                option.value.span(),
                format!("permits are over the limit of {MAX_PERMITS}; count in greater units"),
            ));
        }
        let Some(option) = &self.weight else { return };
        if self.permits.is_none() {
            errors.push(Error::new(option.name, "a weight counts permits; write permits = … too, or drop weight"));
        } else if weight == Some(0) {
            errors.push(Error::new(option.value.span(), "a weight of 0 would take no permit; use at least 1"));
        } else if let (Some(permits), Some(weight)) = (permits, weight)
            && weight > permits
            && permits > 0
        {
            errors.push(Error::new(
                option.value.span(),
                format!(
                    "a weight of {weight} never fits into {permits} permits; lower the weight, or raise the permits"
                ),
            ));
        }
    }

    fn check_job(&self, errors: &mut Vec<Error>) {
        let job = self.job();
        let Some(place) = &job else {
            let needs = [
                ("retry_failed", self.retry_failed.as_ref().map(|option| option.name)),
                ("run_once_even_if", self.run_once_even_if.as_ref().map(|option| option.name)),
            ];
            errors.extend(needs.into_iter().filter_map(|(name, at)| {
                Some(Error::new(
                    at?,
                    format!("{name} says what counts as a run of a job; add at_most_every, once_every or once_at"),
                ))
            }));
            return;
        };
        let skips = "a job that runs or has run is always skipped; drop on_busy";
        errors.extend(clash(&job, self.on_busy.as_ref().filter(|option| option.order != place.order), skips));
        errors.extend(clash(
            &job,
            self.wait.as_ref(),
            "a job never waits: if it runs or has run, the call is skipped; drop wait",
        ));
        let kept = "a job has its own time for which the key stays taken; drop min_hold";
        errors.extend(clash(&job, self.min_hold.as_ref(), kept));
        let failed = "write retry_failed for a job that has not run if it failed; drop min_hold_on";
        errors.extend(clash(&job, self.min_hold_on.as_ref(), failed));
        let alone = "a job runs in one place; drop mode";
        errors.extend(clash(&job, self.mode.as_ref(), alone));
        let alone = "a job runs in one place; drop permits";
        errors.extend(clash(&job, self.permits.as_ref(), alone));
        let stripes = "ids that share a stripe would share the runs of a job; drop stripes";
        errors.extend(clash(&job, self.stripes.as_ref(), stripes));
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
            if interval < MIN_RENEW_INTERVAL {
                refuse(
                    at,
                    format!(
                        "renewing every {} would load the store for nothing; use at least \"10ms\" (a third of the ttl is \
                         the default)",
                        show(interval)
                    ),
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
        if let (Some(option), Some(true)) = (&self.max_hold, known(&self.max_hold).map(|limit| limit.is_zero())) {
            refuse(&option.value, "max_hold of zero would lose every lock at once; leave it out".to_owned());
        }
        for (job, kept_tenths) in [(&self.at_most_every, 10), (&self.once_every, 9)] {
            let (Some(option), Some(period)) = (job, known(job)) else { continue };
            if period < MIN_PERIOD {
                refuse(&option.value, "a job cannot run more often than every second; use at least \"1s\"".to_owned());
            } else if period / 10 * kept_tenths > MAX_TTL {
                let period = show(period);
                refuse(
                    &option.value,
                    format!(
                        "a job every {period} would keep its key for longer than the limit of 30d; use once_at with the time of its schedule"
                    ),
                );
            }
        }
        if let (Some(option), Some(time)) = (&self.min_hold, known(&self.min_hold))
            && time > MAX_TTL
        {
            refuse(&option.value, format!("min_hold {} is over the limit of 30d; use a shorter one", show(time)));
        }
        if let (Some(option), Some(true)) = (&self.stuck_after, known(&self.stuck_after).map(|limit| limit.is_zero())) {
            refuse(&option.value, "stuck_after of zero would call every lock stuck".to_owned());
        }
    }
}

/// Writes a duration in the form that the attribute takes.
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
