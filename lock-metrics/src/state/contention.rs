//! The last contended waits, kept after they end: which call site blocked which, on which key.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Holder, LockKey};

use crate::words::time::Moment;

/// How many are kept. When one more comes, the oldest is dropped.
pub(crate) const KEPT: usize = 128;

/// Shorter waits are not worth showing, and would push out longer ones.
pub(crate) const WORTH: Duration = Duration::from_millis(10);

/// The last waits that ended, the newest last. Waits of one call site for another on one key are one entry.
#[derive(Debug, Default)]
pub(crate) struct Contention(Mutex<VecDeque<Contended>>);

/// The waits of one call site for one holder's call site on one key.
#[derive(Clone, Debug)]
pub(crate) struct Contended {
    pub(crate) key: LockKey,
    /// The number of the lock name.
    pub(crate) family: usize,
    /// The number of the call site that waited.
    pub(crate) site: usize,
    /// The holder that was seen last.
    pub(crate) holder: Holder,
    /// How the last of the waits ended, as an outcome of an acquire.
    pub(crate) outcome: &'static str,
    pub(crate) waits: u64,
    pub(crate) waited: Duration,
    pub(crate) longest: Duration,
    pub(crate) last: Moment,
}

impl Contention {
    /// Notes a wait that has ended.
    pub(crate) fn note(
        &self,
        key: &LockKey,
        [family, site]: [usize; 2],
        holder: &Holder,
        waited: Duration,
        outcome: &'static str,
    ) {
        if waited < WORTH {
            return;
        }
        let now = Moment::coarse();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |one: &Contended| {
            (one.family, one.site) == (family, site) && one.key == *key && one.holder.site() == holder.site()
        };
        // Frequent entries are near the end.
        let known = kept.iter().rposition(same).and_then(|at| kept.remove(at));
        let new = || Contended {
            key: key.clone(),
            family,
            site,
            holder: holder.clone(),
            outcome,
            waits: 0,
            waited: Duration::ZERO,
            longest: Duration::ZERO,
            last: now,
        };
        let mut one = known.unwrap_or_else(new);
        (one.waits, one.waited) = (one.waits + 1, one.waited.saturating_add(waited));
        (one.longest, one.last, one.outcome) = (one.longest.max(waited), now, outcome);
        one.holder.clone_from(holder);
        let forgotten = if kept.len() >= KEPT { kept.pop_front() } else { None };
        kept.push_back(one);
        drop(kept);
        // Freed after the list is unlocked.
        drop(forgotten);
    }

    /// Returns the entries, the newest first.
    pub(crate) fn newest(&self) -> Vec<Contended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}
