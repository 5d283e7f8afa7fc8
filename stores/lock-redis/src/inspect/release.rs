//! Takes a lock away, as an operator may.

use std::time::Duration;

use redis::Value;

use crate::calls::release::{End, free};
use crate::inspect::holders;
use crate::inspect::servers::{Servers, within};
use crate::protocol::{keys, steps};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{Claim, EntryState, Freed, Release, Revocation, RevokeFrom};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::OwnerId;

impl Servers {
    /// Takes a lock away from the holder that is named.
    pub(super) async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        let server = self.keeper_of(key).await?;
        let owner = match &revocation.from {
            RevokeFrom::Owner(owner) => *owner,
            RevokeFrom::Foreign(value) => return within(&server, "release", delete(&server, key, value)).await,
        };
        // A release needs only the key, the owner and the mode of a claim. An unreadable value is compared later.
        let mode = self.mode_of(key, owner).await.ok().flatten().unwrap_or_default();
        let mut claim = Claim::new(key.clone(), Duration::ZERO).with_mode(mode);
        claim.owner = owner;
        let claim = Release::new(claim);
        let told = within(&server, "release", announce(&server, &claim.claim, revocation)).await;
        if let Err(error) = &told {
            tracing::debug!(%error, "the holder could not be told who takes its lock away");
        }
        let freed = within(&server, "release", free(&server, End::Release, &claim, Way::default())).await;
        match (told, freed) {
            // The holder was notified, and released first.
            (Ok(true), Ok(Freed::NotHeld)) => Ok(Freed::Released),
            (_, freed) => freed,
        }
    }

    /// Returns how a claim shares a lock, if it does.
    async fn mode_of(&self, key: &LockKey, owner: OwnerId) -> Result<Option<Mode>> {
        if self.entry(key).await?.is_none_or(|entry| entry.state != EntryState::Shared) {
            return Ok(None);
        }
        let sharers = holders::read(self, key).await?;
        Ok(sharers.into_iter().find(|sharer| sharer.owner == Some(owner)).and_then(|sharer| sharer.mode))
    }
}

/// Tells the process of this owner that its lock is taken away. Returns whether the lock was its own.
async fn announce(store: &Node, claim: &Claim, revocation: &Revocation) -> Result<bool> {
    let Claim { key, owner, mode, .. } = claim;
    let connection = store.pool.connection().await?;
    let link = &connection.link;
    let reading = link.send(redis::cmd("GETRANGE").arg(key.as_str()).arg(0).arg(31)).await;
    let answer = reading.map_err(|error| store.failed("read the lock", &error))?;
    // An owner is used for one lock, once, so nobody else can have this text.
    if !mode.is_shared() && !matches!(answer, Value::BulkString(text) if text == owner.digits()) {
        return Ok(false);
    }
    let message = steps::revoking(*owner, &revocation.actor, &revocation.reason);
    let told = link.send(redis::cmd("PUBLISH").arg(keys::REVOKED).arg(message)).await;
    told.map_err(|error| store.failed("tell the holder", &error))?;
    Ok(true)
}

/// Deletes a key that holds exactly this value.
async fn delete(store: &Node, key: &LockKey, value: &[u8]) -> Result<Freed> {
    let connection = store.pool.connection().await?;
    let answer = connection.link.eval(&steps::release_foreign(key.as_str(), value)).await;
    match answer.map_err(|error| store.failed("release", &error))? {
        Value::Int(1) => Ok(Freed::Released),
        Value::Int(0) => Ok(Freed::NotHeld),
        _ => Err(store.unreadable("release")),
    }
}
