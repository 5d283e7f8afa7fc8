//! The notes that holders publish while they wait for another lock.

use std::collections::HashMap;

use lock_store::contract::backend::Blocked;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Timestamp;
use lock_store::types::system::sync::Mutex;

#[derive(Debug, Default)]
pub(super) struct BlockedHolders(Mutex<HashMap<LockKey, (Blocked, Timestamp)>>);

impl BlockedHolders {
    pub(super) fn set(&self, key: &LockKey, blocked: Option<&Blocked>, now: Timestamp) {
        let mut holders = self.0.lock();
        // Few tasks wait while they hold a lock, so this walk is short.
        holders.retain(|_, (_, until)| *until > now);
        match blocked {
            Some(blocked) => drop(holders.insert(key.clone(), (blocked.clone(), now.after(Blocked::KEPT)))),
            None => drop(holders.remove(key)),
        }
    }

    pub(super) fn get(&self, key: &LockKey, now: Timestamp) -> Option<Blocked> {
        let holders = self.0.lock();
        holders.get(key).filter(|(_, until)| *until > now).map(|(blocked, _)| blocked.clone())
    }
}
