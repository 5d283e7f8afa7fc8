//! The claims of this process: those that have a lock, and those whose last write has no answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lock_store::types::system::sync::Mutex;
use lock_store::{OwnerId, Timestamp};

use crate::record::Record;

/// How many claims are remembered whose time is long over.
const MOST: usize = 4096;
const LONG_OVER: Duration = Duration::from_secs(60);

/// A claim that has its lock.
#[derive(Clone, Debug)]
struct Held {
    /// The Lease as it was last answered or seen.
    record: Arc<Record>,
    /// When its lease ends, counted from the sending of the last answered write.
    expires: Timestamp,
    /// Whether its release has begun. From then on it is not renewed.
    is_ending: bool,
}

/// All claims of this process.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<HashMap<OwnerId, Held>>,
    /// The version of the Lease on which a write without an answer was based, or 0 if there was none. Only while the Lease is still so,
    /// the write may come late.
    unsettled: Mutex<HashMap<OwnerId, u64>>,
}

impl Claims {
    /// Notes a grant. Returns how many locks this process has now.
    pub(crate) fn grant(&self, owner: OwnerId, record: Arc<Record>, expires: Timestamp, now: Timestamp) -> usize {
        let mut held = self.held.lock();
        if held.len() >= MOST {
            held.retain(|_, held| now.since(held.expires) < LONG_OVER);
        }
        held.insert(owner, Held { record, expires, is_ending: false });
        held.values().map(|held| held.record.name()).collect::<HashSet<_>>().len()
    }

    /// Returns the Lease of a claim that has its lock.
    pub(crate) fn get(&self, owner: OwnerId) -> Option<Arc<Record>> {
        self.held.lock().get(&owner).filter(|held| !held.is_ending).map(|held| Arc::clone(&held.record))
    }

    /// Returns how long the lease of a claim still runs.
    pub(crate) fn left(&self, owner: OwnerId, now: Timestamp) -> Option<Duration> {
        self.held.lock().get(&owner).filter(|held| !held.is_ending).map(|held| held.expires.since(now))
    }

    /// Notes a renewal. Returns whether the claim still has its lock. Never shortens a lease.
    pub(crate) fn renew(&self, owner: OwnerId, expires: Timestamp) -> bool {
        let mut held = self.held.lock();
        let Some(held) = held.get_mut(&owner).filter(|held| !held.is_ending) else { return false };
        held.expires = held.expires.max(expires);
        true
    }

    /// Notes how the Lease of a claim looks now. An event may be older than the last answer.
    pub(crate) fn see(&self, record: &Arc<Record>) {
        let Some(owner) = record.owner() else { return };
        if let Some(held) = self.held.lock().get_mut(&owner).filter(|held| held.record.version < record.version) {
            held.record = Arc::clone(record);
        }
    }

    /// Returns which claim of this process has a Lease.
    pub(crate) fn of_lease(&self, name: &str) -> Option<OwnerId> {
        let held = self.held.lock();
        held.iter().find(|(_, held)| !held.is_ending && held.record.name() == name).map(|(owner, _)| *owner)
    }

    /// Notes that a release has begun, and returns the Lease to be written.
    pub(crate) fn end(&self, owner: OwnerId) -> Option<Arc<Record>> {
        let mut held = self.held.lock();
        let held = held.get_mut(&owner)?;
        held.is_ending = true;
        Some(Arc::clone(&held.record))
    }

    /// Forgets a claim that does not have its lock any more.
    pub(crate) fn remove(&self, owner: OwnerId) {
        self.held.lock().remove(&owner);
    }

    /// Notes that a write is sent that takes a lock. Returns what an earlier one was based on that has no answer.
    pub(crate) fn send(&self, owner: OwnerId, based: u64) -> Option<u64> {
        self.unsettled.lock().insert(owner, based)
    }

    /// Notes that no write of a claim can come late any more.
    pub(crate) fn settle(&self, owner: OwnerId) {
        self.unsettled.lock().remove(&owner);
    }

    /// Returns what the unanswered write of a claim was based on.
    pub(crate) fn unsettled(&self, owner: OwnerId) -> Option<u64> {
        self.unsettled.lock().get(&owner).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lock_store::{Claim, FencingToken, HolderInfo, LockKey, Timestamp};

    use super::Claims;
    use crate::record::Record;

    fn held(name: &str) -> (Claim, Arc<Record>) {
        let claim = Claim::new(LockKey::new(name).unwrap(), Duration::from_secs(10));
        let mut lease =
            Record::blank(&claim.key).granted(&claim, &HolderInfo::new("h", 1, "s"), FencingToken::new(0), 0).unwrap();
        lease.metadata.resource_version = Some("1".to_owned());
        (claim, Arc::new(Record::of(lease).unwrap()))
    }

    #[test]
    fn a_claim_whose_release_has_begun_is_not_renewed() {
        let (claims, (one, record), now) = (Claims::default(), held("a"), Timestamp::from_nanos(0));
        let second = |number| now.after(Duration::from_secs(number));
        assert_eq!(claims.grant(one.owner, record, second(10), now), 1);
        let (two, other) = held("b");
        assert_eq!(claims.grant(two.owner, other, second(10), now), 2);
        assert!(claims.renew(one.owner, second(5)));
        assert_eq!(claims.left(one.owner, now), Some(Duration::from_secs(10)), "a lease is never shortened");
        assert_eq!(claims.of_lease("a"), Some(one.owner));
        assert!(claims.end(one.owner).is_some());
        assert!(!claims.renew(one.owner, second(20)) && claims.get(one.owner).is_none());
        assert_eq!(claims.of_lease("a"), None);
        assert!(claims.end(one.owner).is_some(), "a release may be repeated");
    }

    #[test]
    fn a_write_without_an_answer_is_remembered() {
        let (claims, (one, _)) = (Claims::default(), held("a"));
        assert_eq!(claims.send(one.owner, 7), None);
        assert_eq!(claims.unsettled(one.owner), Some(7));
        claims.settle(one.owner);
        assert_eq!(claims.unsettled(one.owner), None);
    }
}
