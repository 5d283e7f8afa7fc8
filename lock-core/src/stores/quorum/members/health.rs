//! Remembers how the members behaved in this process's calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::contract::event::MemberState;
use crate::types::system::clock::Timestamp;

/// The knowledge about one member.
#[derive(Debug, Default)]
pub(crate) struct Health {
    away: AtomicBool,
    /// Whether another list is in use there that does not fit ours.
    disagrees: AtomicBool,
    /// Until when it does not count, in nanoseconds of the clock.
    excluded_until: AtomicU64,
    repairs: AtomicU64,
}

impl Health {
    /// Notes whether it answered.
    pub(crate) fn answered(&self, answered: bool) {
        self.away.store(!answered, Ordering::Relaxed);
    }

    /// Notes whether another list is in use there that does not fit ours.
    pub(crate) fn disagrees(&self, disagrees: bool) {
        self.disagrees.store(disagrees, Ordering::Relaxed);
    }

    /// Notes until when it does not count.
    pub(crate) fn excluded_until(&self, until: Timestamp) {
        self.excluded_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a claim that it had lost was given to it again.
    pub(crate) fn repaired(&self) {
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the count of what was given to it again since the last time.
    pub(crate) fn take_repairs(&self) -> u64 {
        self.repairs.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn state(&self, now: Timestamp) -> MemberState {
        if self.disagrees.load(Ordering::Relaxed) {
            MemberState::Disagrees
        } else if self.away.load(Ordering::Relaxed) {
            MemberState::Away
        } else if self.excluded_until.load(Ordering::Relaxed) > now.as_nanos() {
            MemberState::Excluded
        } else {
            MemberState::Counted
        }
    }
}

/// The rounds since the last report.
#[derive(Debug, Default)]
pub(crate) struct RoundCounts {
    first: AtomicU64,
    second: AtomicU64,
}

impl RoundCounts {
    pub(crate) fn count(&self, second: bool) {
        let rounds = if second { &self.second } else { &self.first };
        rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the counts of first and second rounds since the last time.
    pub(crate) fn take(&self) -> (u64, u64) {
        (self.first.swap(0, Ordering::Relaxed), self.second.swap(0, Ordering::Relaxed))
    }
}
