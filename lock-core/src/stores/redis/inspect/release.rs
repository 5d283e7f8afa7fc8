//! Takes a lock away, as an operator may.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::contract::backend::{Claim, Freed, Release};
use crate::stores::redis::calls::release::End;
use crate::stores::redis::inspect::FleetReader;
use crate::stores::redis::inspect::servers::within;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::{keys, steps};
use crate::types::error::Result;
use crate::types::key::LockKey;
use crate::types::owner::OwnerId;

impl FleetReader {
    /// Takes a lock away from the holder with this identity, and from no other.
    ///
    /// First the holder's process is told who takes the lock away and why; it reports the loss as
    /// [`LossReason::Revoked`](crate::LossReason::Revoked). Then comes the ordinary release: the
    /// comparison and the deletion are one step on the server, and the next grant has a greater fencing
    /// token. A process that cannot be told, because it is not listening at the moment, learns of it at
    /// its next renewal, as [`LossReason::Stolen`](crate::LossReason::Stolen). Until then it believes that
    /// it holds the lock: only a resource that checks tokens is safe in between.
    ///
    /// Whatever the outcome, a `tracing` event with the target `lock_core::audit` says who asked
    /// (`actor`), for which key, and why. The process of the holder emits one too.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry). After [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable)
    /// the lock may or may not have been released; repeating the call is safe.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; the lock may still be taken away.
    pub async fn release(&self, key: &LockKey, owner: OwnerId, actor: &str, reason: &str) -> Result<Freed> {
        // A release needs only the key, the owner and the mode of a claim. What cannot be read is compared later.
        let holders = self.holders(key).await.unwrap_or_default();
        let mode = holders.iter().find(|holder| holder.owner == Some(owner)).and_then(|holder| holder.mode);
        let claim = Claim { owner, ..Claim::new(key.clone(), Duration::ZERO) }.with_mode(mode.unwrap_or_default());
        let claim = Release::new(claim);
        let store = self.servers.keeper_of(key).await;
        let freed = match &store {
            Ok(store) => {
                let told = within(store, "release", announce(store, &claim.claim, actor, reason)).await;
                if let Err(error) = &told {
                    tracing::debug!(%error, "the holder could not be told who takes its lock away");
                }
                let freed = within(store, "release", store.free(End::Release, &claim, Way::default())).await;
                match (told, freed) {
                    // The holder was notified, and released first.
                    (Ok(true), Ok(Freed::NotHeld)) => Ok(Freed::Released),
                    (_, freed) => freed,
                }
            }
            Err(error) => Err(error.clone()),
        };
        self.audit(&store, key, Some(owner), actor, reason, &freed);
        self.told(freed, key).await
    }

    /// Takes a lock away from a client of another library: deletes the key if it holds exactly this
    /// value, in one step on the server.
    ///
    /// That client is not notified. It finds out when it renews or releases, if it checks.
    ///
    /// Audited as [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; the lock may still be taken away.
    pub async fn release_foreign(&self, key: &LockKey, value: &[u8], actor: &str, reason: &str) -> Result<Freed> {
        let store = self.servers.keeper_of(key).await;
        let freed = match &store {
            Ok(store) => within(store, "release", delete(store, key, value)).await,
            Err(error) => Err(error.clone()),
        };
        self.audit(&store, key, None, actor, reason, &freed);
        self.told(freed, key).await
    }

    fn audit(
        &self,
        store: &Result<Arc<Node>>,
        key: &LockKey,
        owner: Option<OwnerId>,
        actor: &str,
        reason: &str,
        freed: &Result<Freed>,
    ) {
        let outcome = match freed {
            Ok(Freed::Released) => "released",
            Ok(Freed::NotHeld) => "not_held",
            Err(_) => "failed",
        };
        let (node, key) = (store.as_ref().map_or(self.node(), |store| store.pool.node()), key.as_str());
        tracing::warn!(
            target: "lock_core::audit",
            action = "release", node, key, ?owner, actor, reason, outcome,
            "an operator asked to release a lock"
        );
    }
}

/// Tells the process of this owner that its lock is taken away. Returns whether the lock was its own.
async fn announce(store: &Node, claim: &Claim, actor: &str, reason: &str) -> Result<bool> {
    let Claim { key, owner, mode, .. } = claim;
    let connection = store.pool.connection().await?;
    let link = &connection.link;
    let mut reading = redis::cmd("GETRANGE");
    reading.arg(key.as_str()).arg(0).arg(31);
    let answer = link.send(&reading).await.map_err(|error| store.failed("read the lock", &error))?;
    // An owner is used for one lock, once, so nobody else can have this text.
    if !mode.is_shared() && !matches!(answer, Value::BulkString(text) if text == owner.digits()) {
        return Ok(false);
    }
    let mut telling = redis::cmd("PUBLISH");
    telling.arg(keys::REVOKED).arg(steps::revoking(*owner, actor, reason));
    link.send(&telling).await.map_err(|error| store.failed("tell the holder", &error))?;
    Ok(true)
}

/// Deletes a key that holds exactly this value.
async fn delete(store: &Node, key: &LockKey, value: &[u8]) -> Result<Freed> {
    let connection = store.pool.connection().await?;
    let link = &connection.link;
    let answer = link
        .eval(&steps::release_foreign(key.as_str(), value))
        .await
        .map_err(|error| store.failed("release", &error))?;
    match answer {
        Value::Int(1) => Ok(Freed::Released),
        Value::Int(0) => Ok(Freed::NotHeld),
        _ => Err(store.unreadable("release")),
    }
}
