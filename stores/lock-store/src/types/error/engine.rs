//! The errors that the engine makes. A store makes none of them.

use std::fmt;
use std::time::Duration;

use crate::types::error::{LockError, LockErrorKind, LossReason};
use crate::types::key::LockKey;
use crate::types::owner::{Holder, Standing};

/// The advice for a key without an expiry, whose client may have ended.
const NEVER_FREED: &str = "it never expires: see who wrote it with `lockctl why KEY`";

#[doc(hidden)]
impl LockError {
    #[must_use]
    pub fn timeout(waited: Duration, holder: Option<Holder>) -> Self {
        let message = match &holder {
            Some(Holder { doubt: Some(doubt), .. }) => format!("not granted after waiting {waited:.3?}: {doubt}"),
            Some(holder) => format!(
                "still taken after waiting {waited:.3?}, {}; {}",
                holder.in_the_way("held"),
                match holder.standing() {
                    Standing::Kept => "wait for that long, or ask again then",
                    Standing::Endless => NEVER_FREED,
                    Standing::Pinned => "it stays taken until that has ended",
                    Standing::Leased => {
                        "wait longer, hold it for less time, or look for a holder that waits for this caller"
                    }
                },
            ),
            // The caller never got to the store: it waited behind other callers, which may not have had an answer
            // either.
            None => format!(
                "not granted after waiting {waited:.3?} behind other callers, and no holder is known; wait longer, or \
                 check that the store answers",
            ),
        };
        Self::timed_out(message, waited, holder)
    }

    /// Ends the wait for some of the permits of a semaphore.
    pub(crate) fn no_permits(wanted: &dyn fmt::Display, waited: Duration, holder: Option<Holder>) -> Self {
        let who = holder.as_ref().map_or_else(String::new, |holder| format!(", others {}", holder.in_the_way("taken")));
        let message = format!(
            "waited {waited:.3?} without getting {wanted}{who}; wait longer, hold them for less time, or raise the \
             number of permits in every process (`lockctl show` lists who has how many)",
        );
        Self::timed_out(message, waited, holder)
    }

    /// Adds which locks the caller holds while it waits.
    #[must_use]
    pub fn while_holding(self, held: &str) -> Self {
        self.edit(|inner| inner.message = format!("{}; this task holds {held} meanwhile", inner.message).into())
    }

    fn timed_out(message: String, waited: Duration, holder: Option<Holder>) -> Self {
        Self::build(LockErrorKind::Timeout, message).edit(|inner| {
            inner.waited = Some(waited);
            inner.holder = holder;
        })
    }

    pub fn busy(holder: Option<Holder>) -> Self {
        let taken = match &holder {
            Some(Holder { doubt: Some(doubt), .. }) => format!("not granted: {doubt}"),
            Some(holder) => holder.in_the_way("taken"),
            None => "taken".to_owned(),
        };
        let advice = match holder.as_ref().map(Holder::standing) {
            Some(Standing::Endless) => NEVER_FREED,
            Some(Standing::Pinned) => "set a wait that is longer than what keeps it",
            _ => "set a wait to queue for it",
        };
        Self::build(LockErrorKind::Busy, format!("{taken}; {advice}")).edit(|inner| inner.holder = holder)
    }

    #[must_use]
    pub fn lost(reason: LossReason) -> Self {
        // After a shutdown, another acquire would fail too.
        let again = if reason == LossReason::ShutDown { "" } else { " and acquire again" };
        Self::build(LockErrorKind::Lost, format!("lost: {reason}; stop writing under it{again}"))
            .edit(|inner| inner.reason = Some(reason))
    }

    #[must_use]
    pub fn would_deadlock(key: &LockKey) -> Self {
        let message = match key.stripe() {
            None => {
                "this task already holds it, so waiting would never end; pass the guard down, or make the inner call reentrant"
            }
            Some(_) => {
                "this task already holds this stripe, perhaps for another id, so waiting would never end; take all ids \
                 together with lock_all, or make the inner call reentrant"
            }
        };
        Self::build(LockErrorKind::WouldDeadlock, message)
    }

    /// Ends the wait of a task in a cycle. `deadlock` describes the cycle.
    pub fn deadlock(deadlock: &dyn fmt::Display) -> Self {
        Self::build(
            LockErrorKind::WouldDeadlock,
            format!(
                "{deadlock}; this task gives way, since its lock is the youngest: release it and try again, and \
                 take these \
                 locks in one order everywhere, or together with lock_all"
            ),
        )
    }

    /// Refuses to block. `instead` is the function to call instead.
    #[must_use]
    pub fn driven_here(instead: &str) -> Self {
        Self::build(
            LockErrorKind::Misconfigured,
            format!("this manager is driven by the current runtime, which a blocking call would stop; use {instead}"),
        )
    }
}

/// Makes errors that always have the same text.
macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $text:literal;)+) => {
        #[doc(hidden)]
        impl LockError {
            $($(#[$doc])*
            #[must_use]
            pub fn $name() -> Self {
                Self::build(LockErrorKind::$kind, $text)
            })+
        }
    };
}

fixed! {
    no_upgrade: WouldDeadlock =
        "this task already shares it, and waiting for more would never end if two callers did it at once; take the \
        stronger lock first, and downgrade it when reading is enough";
    not_installed: NotInstalled =
        "no lock manager is installed here; call LockManager::connect(url).await?.install() at start-up, \
        LockManager::scope or set_default in tests, or name one with client = …";
    forked: Misconfigured =
        "this process was forked after its lock manager was made, and connections and watchdog stayed with the \
        parent; connect a new one here";
    no_stripes: InvalidKey = "except() leaves no stripe that could be locked; leave at least one";
    no_keys: InvalidKey = "no key was given, so nothing would be locked; name at least one";
    shut_down: ShutDown = "the lock manager was shut down; acquire before shutdown, or connect a new one";
    /// Refuses new work while accepted work continues.
    stopping: ShutDown =
        "the lock manager is stopping and takes no new work; for work that was accepted before, build it with \
        serve_while_stopping()";
}
