//! The locks of a whole fleet, with holders in Java.

use std::time::Duration;

use crate::names::{self, Field};
use crate::store::RedissonStore;
use lock_redis::layout::revoking;
use lock_store::contract::backend::{
    Freed, Inspector, LockEntry, Revocation, RevokeFrom, ScanPage, ScanPosition, Waiter,
};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::together::all;

impl Inspector for RedissonStore {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let (mut page, mut keys) = self.redis.names("hash", prefix, limit, after).await?;
        keys.retain(|key| names::check(key).is_ok());
        let seen = all(keys.iter().map(|key| self.seen(key))).await;
        for (key, seen) in keys.into_iter().zip(seen) {
            // Any program may keep hashes there.
            if let Some(seen) = seen?.filter(|seen| seen.field.is_some()) {
                page.entries.push(seen.entry(key));
            }
        }
        Ok(page)
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        Ok(self.seen(key).await?.map(|seen| seen.entry(key.clone())))
    }

    /// The waiters of Redisson are not known, and those of this library stand in no queue.
    async fn waiters(&self, _: &LockKey) -> Result<Vec<Waiter>> {
        Ok(Vec::new())
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        names::check(key)?;
        let Revocation { from, actor, reason, .. } = revocation;
        let (field, message) = match from {
            RevokeFrom::Owner(owner) => (names::field(*owner), revoking(*owner, actor, reason)),
            // Only a field that Redisson writes: what this library writes has an owner.
            RevokeFrom::Foreign(value) => match String::from_utf8(value.clone()) {
                Ok(field) if matches!(Field::read(&field), Some(Field::Redisson(..))) => (field, String::new()),
                _ => return Ok(Freed::NotHeld),
            },
        };
        let by = [field, "0".to_owned(), String::new(), message];
        self.unlock(key, by, OwnerId::random(), Duration::from_secs(1)).await
    }
}
