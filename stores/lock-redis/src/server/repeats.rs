//! Releases that another master may not have heard of.
//!
//! Replication is asynchronous: a lock that was freed just before its master died is still taken on the replica that
//! takes over, until its lease ends. So what was freed lately is freed again there: behind sentinels, in a cluster, and
//! on any server whose data turn out to have another history. The masters of a cluster remember together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_store::contract::backend::{Claim, Release};
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// How many releases are remembered. A forgotten lock ends with its lease.
const AT_MOST: usize = 16 * 1024;

/// The claims that were freed lately, each until its lease would have ended.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    freed: Mutex<VecDeque<(Timestamp, Claim)>>,
    /// Whether nothing is remembered.
    off: AtomicBool,
}

impl Repeats {
    /// Remembers nothing any more: of a quorum's member, which is told to undo a vote of a claim that goes on to ask, so
    /// that the same claim may hold the lock later.
    pub(crate) fn switch_off(&self) {
        if !self.off.swap(true, Ordering::Relaxed) {
            self.freed.lock().clear();
        }
    }

    /// Remembers a claim that was freed. A lock that stays taken for its `min_hold` ends with its lease.
    pub(crate) fn note(&self, release: &Release) {
        if !release.keep_for.is_zero() || self.off.load(Ordering::Relaxed) {
            return;
        }
        let now = Clock::system().now();
        let mut freed = self.freed.lock();
        while freed.front().is_some_and(|(until, _)| freed.len() >= AT_MOST || *until <= now) {
            freed.pop_front();
        }
        freed.push_back((now.after(release.claim.ttl), release.claim.clone()));
    }

    /// Returns the claims that were freed lately. They are kept: the next server may not have heard of it either.
    pub(crate) fn live(&self, now: Timestamp) -> Vec<Claim> {
        self.freed.lock().iter().filter(|(until, _)| *until > now).map(|(_, claim)| claim.clone()).collect()
    }
}

#[cfg(test)]
#[path = "tests/repeats.rs"]
mod tests;
