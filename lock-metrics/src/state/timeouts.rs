//! Waits that timed out a moment ago. Callers that give up and retry are rarely waiting at the moment of a scrape, so
//! that a stuck lock would seem to have no waiters.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Holder, LockKey};

use crate::words::time::Moment;

/// How long a time-out counts as a wait: the longest time between two scrapes.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// How many are kept. When one more comes, the oldest is dropped.
const KEPT: usize = 1_024;

/// The last time-outs, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    /// Whether there may be any: the hot path looks here first.
    any: AtomicBool,
    kept: Mutex<VecDeque<TimedOut>>,
}

/// A wait that timed out.
#[derive(Clone, Debug)]
pub(crate) struct TimedOut {
    pub(crate) key: LockKey,
    /// The number of the lock name, which also identifies the store.
    pub(crate) family: usize,
    /// The holder that was seen last.
    pub(crate) holder: Holder,
    at: Moment,
}

impl Timeouts {
    pub(crate) fn note(&self, key: &LockKey, family: usize, holder: &Holder) {
        let timed_out = TimedOut { key: key.clone(), family, holder: holder.clone(), at: Moment::coarse() };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = if kept.len() >= KEPT { kept.pop_front() } else { None };
        kept.push_back(timed_out);
        self.any.store(true, Ordering::Relaxed);
        drop(kept);
        // Freed after the list is unlocked.
        drop(forgotten);
    }

    /// Forgets the time-outs at a key that this process got since: whatever held it has let it go.
    pub(crate) fn forget(&self, key: &LockKey, family: usize) {
        if self.any.load(Ordering::Relaxed) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|one| one.family != family || one.key != *key);
            self.any.store(!kept.is_empty(), Ordering::Relaxed);
        }
    }

    /// Returns the time-outs that still count.
    pub(crate) fn recent(&self, now: Moment) -> Vec<TimedOut> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| now.since(one.at) < COUNTS_FOR);
        self.any.store(!kept.is_empty(), Ordering::Relaxed);
        kept.iter().cloned().collect()
    }
}
