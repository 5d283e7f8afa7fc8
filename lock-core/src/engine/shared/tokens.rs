//! The newest fencing token that this process has seen of each key.
//!
//! Tokens of different keys have no order: a cluster has several clocks, and a store may draw the tokens of two keys in
//! one order and answer in the other. A comparison across keys would report lost data on a healthy store.

use std::hash::{BuildHasher, RandomState};

use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::system::sync::Mutex;

/// The number of keys that are remembered. Two keys may share a place, which remembers the last of them.
const PLACES: usize = 1024;

/// A place of the table: the key that was granted last, and its newest token.
type Place = Mutex<Option<(LockKey, FencingToken)>>;

/// A table of fixed size: a process may take any number of keys.
pub(crate) struct NewestTokens {
    places: Box<[Place]>,
    hasher: RandomState,
}

impl Default for NewestTokens {
    fn default() -> Self {
        let places = std::iter::repeat_with(Mutex::default).take(PLACES).collect();
        Self { places, hasher: RandomState::new() }
    }
}

impl NewestTokens {
    /// Returns the newest known token of a key. A grant that is requested after this call must have a higher one.
    pub(crate) fn of(&self, key: &LockKey) -> FencingToken {
        let place = self.place(key).lock();
        let known = place.as_ref().filter(|(known, _)| known == key);
        known.map_or(FencingToken::new(0), |(_, token)| *token)
    }

    pub(crate) fn note(&self, key: &LockKey, token: FencingToken) {
        let mut place = self.place(key).lock();
        match &mut *place {
            Some((known, newest)) if known == key => *newest = token.max(*newest),
            other => *other = Some((key.clone(), token)),
        }
    }

    fn place(&self, key: &LockKey) -> &Place {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than the number of places.
        &self.places[usize::try_from(hash % PLACES as u64).unwrap_or_default()]
    }
}
