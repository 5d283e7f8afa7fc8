//! The claims of this process that have a node in the current session.

use std::collections::HashMap;
use std::time::Duration;

use lock_store::types::system::sync::Mutex;
use lock_store::{FencingToken, LockKey, OwnerId, Ticket, Timestamp};
use tokio::task::AbortHandle;

use crate::data::ClaimData;

/// A claim with a node.
#[derive(Debug)]
pub(crate) struct Place {
    known: Known,
    /// Whether its node is being removed. It has nothing any more, whatever a server still shows.
    ending: bool,
    /// The task that ends it in time and watches for its turn.
    tender: Option<Tender>,
}

/// The part of a place that a call needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) path: String,
    pub(crate) session: i64,
    pub(crate) data: ClaimData,
    /// The token of its grant, and when that was by the server's clock. `None` if it waits.
    pub(crate) granted: Option<(FencingToken, i64)>,
    /// How it waits. `None` if it is not told of its turn.
    pub(crate) ticket: Option<Ticket>,
    /// When its caller asked last for the place.
    pub(crate) asked: Timestamp,
    /// The token that its own must exceed.
    pub(crate) floor: FencingToken,
    /// When its node is removed, unless it is renewed or confirms its place.
    pub(crate) expires: Timestamp,
}

/// A task that ends with the place.
#[derive(Debug)]
struct Tender {
    task: AbortHandle,
    /// Whether it watches for the turn of the claim.
    watches: bool,
}

impl Drop for Tender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Place {
    pub(crate) fn new(known: Known) -> Self {
        Self { known, ending: false, tender: None }
    }
}

/// All places.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<OwnerId, Place>>);

impl Places {
    pub(crate) fn insert(&self, owner: OwnerId, place: Place) {
        let before = self.0.lock().insert(owner, place);
        // Its task is ended outside of the mutex.
        drop(before);
    }

    /// Gives a place its task.
    pub(crate) fn tend(&self, owner: OwnerId, task: AbortHandle, watches: bool) {
        let tender = Tender { task, watches };
        let before = match self.0.lock().get_mut(&owner) {
            Some(place) => place.tender.replace(tender),
            None => Some(tender),
        };
        drop(before);
    }

    pub(crate) fn remove(&self, owner: OwnerId) {
        let removed = self.0.lock().remove(&owner);
        drop(removed);
    }

    /// Removes the places of a session that has ended. All of its claims are lost.
    pub(crate) fn lose(&self, session: i64) {
        let mut lost = Vec::new();
        {
            let mut places = self.0.lock();
            let owners: Vec<OwnerId> =
                places.iter().filter(|(_, place)| place.known.session == session).map(|(owner, _)| *owner).collect();
            lost.extend(owners.into_iter().filter_map(|owner| places.remove(&owner)));
        }
        drop(lost);
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }

    /// Returns a place that is not being removed.
    pub(crate) fn get(&self, owner: OwnerId) -> Option<Known> {
        self.0.lock().get(&owner).filter(|place| !place.ending).map(|place| place.known.clone())
    }

    /// Returns a place that waits for its turn.
    pub(crate) fn waiting(&self, owner: OwnerId) -> Option<Known> {
        self.get(owner).filter(|place| place.granted.is_none())
    }

    /// Notes that a node is being removed, and returns its place. From now on it is not renewed.
    pub(crate) fn end(&self, owner: OwnerId) -> Option<Known> {
        self.end_expired(owner, Timestamp::NEVER)
    }

    /// Returns when a place expires.
    pub(crate) fn expires(&self, owner: OwnerId) -> Option<Timestamp> {
        self.0.lock().get(&owner).map(|place| place.known.expires)
    }

    /// Like [`end`](Self::end), if its time is over.
    pub(crate) fn end_expired(&self, owner: OwnerId, now: Timestamp) -> Option<Known> {
        let mut places = self.0.lock();
        let place = places.get_mut(&owner).filter(|place| place.known.expires <= now)?;
        place.ending = true;
        Some(place.known.clone())
    }

    /// Notes a grant to a place that waits, or that is granted again. Returns whether it still has its node.
    pub(crate) fn grant(&self, owner: OwnerId, token: FencingToken, at: i64, expires: Timestamp) -> bool {
        self.with(owner, |place| {
            (place.known.granted, place.known.expires) = (Some((token, at)), place.known.expires.max(expires));
        })
    }

    /// Notes how a claim waits, and when it asked last.
    pub(crate) fn wait(&self, owner: OwnerId, ticket: Ticket, asked: Timestamp) {
        self.with(owner, |place| (place.known.ticket, place.known.asked) = (Some(ticket), asked));
    }

    /// Keeps a place or a lock until a time, and never shortens it. Returns whether the claim still has its node.
    pub(crate) fn keep(&self, owner: OwnerId, expires: Timestamp) -> bool {
        self.with(owner, |place| place.known.expires = place.known.expires.max(expires))
    }

    fn with(&self, owner: OwnerId, change: impl FnOnce(&mut Place)) -> bool {
        let mut places = self.0.lock();
        let place = places.get_mut(&owner).filter(|place| !place.ending);
        place.map(change).is_some()
    }

    /// Returns whether the task of a place watches for its turn.
    pub(crate) fn watches(&self, owner: OwnerId) -> bool {
        let places = self.0.lock();
        places.get(&owner).and_then(|place| place.tender.as_ref()).is_some_and(|tender| tender.watches)
    }

    /// Returns the path of the claim that has a lock under a token, or gave it to a caller of this process under a later one.
    pub(crate) fn holding(&self, key: &LockKey, token: FencingToken) -> Option<String> {
        let is_of = |first: FencingToken| (first.get()..first.get() + FencingToken::PER_GRANT).contains(&token.get());
        let places = self.0.lock();
        let mut found = places.values().filter(|place| !place.ending && place.known.data.key == *key);
        found
            .find(|place| place.known.granted.is_some_and(|(first, _)| is_of(first)))
            .map(|place| place.known.path.clone())
    }

    /// Returns how long the lease of a claim of this process still runs.
    pub(crate) fn left(&self, owner: OwnerId, now: Timestamp) -> Option<Duration> {
        self.get(owner).filter(|place| place.granted.is_some()).map(|place| place.expires.since(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::{FencingToken, HolderInfo, LockKey, OwnerId, Timestamp};

    use super::{Known, Place, Places};
    use crate::data::ClaimData;

    fn place(session: i64) -> (OwnerId, Place) {
        let (key, ttl) = (LockKey::new("k").unwrap(), Duration::from_secs(1));
        let data = ClaimData { key, ttl, session: ttl, info: HolderInfo::new("h", 1, "s") };
        let (floor, expires) = (FencingToken::default(), Timestamp::from_nanos(5));
        let asked = Timestamp::from_nanos(0);
        let path = "/p".to_owned();
        let known = Known { path, session, data, granted: None, ticket: None, asked, floor, expires };
        (OwnerId::random(), Place::new(known))
    }

    #[test]
    fn what_is_being_removed_is_neither_renewed_nor_granted() {
        let (places, (owner, place)) = (Places::default(), place(1));
        places.insert(owner, place);
        assert!(places.grant(owner, FencingToken::new(256), 0, Timestamp::from_nanos(0)));
        let (later, now) = (Timestamp::from_nanos(9), Timestamp::from_nanos(7));
        assert!(places.keep(owner, later));
        assert!(places.end_expired(owner, now).is_none(), "it was renewed in time");
        assert!(places.keep(owner, now) && places.expires(owner) == Some(later), "a lease is never shortened");
        assert!(places.end_expired(owner, later).is_some());
        assert!(!places.keep(owner, Timestamp::NEVER), "the server may still show its node, and it is lost");
        assert!(!places.grant(owner, FencingToken::new(384), 0, later) && places.get(owner).is_none());
        assert!(places.end(owner).is_some(), "its release goes on");
    }

    #[test]
    fn the_claims_of_a_session_end_with_it_and_no_others() {
        let (places, [one, two]) = (Places::default(), [1, 2].map(place));
        let owners = [one.0, two.0];
        for (owner, place) in [one, two] {
            places.insert(owner, place);
        }
        places.lose(1);
        assert_eq!(owners.map(|owner| places.waiting(owner).is_some()), [false, true]);
    }

    #[test]
    fn a_token_of_a_grant_finds_its_node() {
        let (places, (owner, place)) = (Places::default(), place(1));
        let key = place.known.data.key.clone();
        places.insert(owner, place);
        assert!(places.grant(owner, FencingToken::new(256), 0, Timestamp::from_nanos(0)));
        let found = [255, 256, 383, 384].map(|token| places.holding(&key, FencingToken::new(token)).is_some());
        assert_eq!(found, [false, true, true, false]);
    }
}
