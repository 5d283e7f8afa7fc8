//! A lease that is held.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::manager::LockManager;
use crate::engine::claim::free::ReleaseOutcome;
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Freed, Release};
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::options::{MIN_FIXED_TTL, command_timeout};
use lock_store::types::owner::{HolderInfo, LEASE, OwnerId};
use lock_store::types::system::clock::wall_clock;

/// A lock that stays taken until it is released, or until its ttl has passed since the last renewal. Use a
/// [`LockGuard`](crate::LockGuard) instead if one process does all of the work.
///
/// It is plain data, and dropping it releases nothing. `Display` writes it as text for another process, `FromStr` reads
/// it, and so does `serde` (feature `serde`). The text proves ownership, so keep it as secret as a password.
/// See the example of [`LockManager::lease`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The key, as the store has it.
    pub key: LockKey,
    /// The name of the holder.
    pub holder: String,
    /// The fencing token. `None` from Redis after [`LeaseRequest::find`](super::LeaseRequest::find), until the lease is
    /// renewed.
    pub token: Option<FencingToken>,
    /// How long the lease lasts after each renewal.
    pub ttl: Duration,
    /// When the lease ends unless it is renewed, by the clock of this machine.
    pub expires_at: SystemTime,
    pub(super) owner: OwnerId,
}

impl Lease {
    /// Renews the lease for its ttl. A renewal never shortens a lease. If the fencing token is unknown, it draws a new one,
    /// which is greater than each token of this lease before.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) if the lease has ended, was released, or was taken away: stop the
    /// work. [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store did not answer: try again before
    /// it ends.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was renewed.
    pub async fn renew(&mut self, locks: &LockManager) -> Result<()> {
        let (engine, now, within) = (locks.engine_here()?, wall_clock(), command_timeout(self.ttl));
        let asked = Arc::clone(&engine.backend).renew(vec![self.claim(locks)]);
        let command = Box::pin(async move {
            asked.await.pop().unwrap_or_else(|| Err(LockError::unavailable("the store gave no answer")))
        });
        let Some(lease) = engine.send("renew", &self.key, within, command).await?.lease(self.ttl) else {
            return Err(LockError::lost(self.loss(now)).with_key(&self.key));
        };
        self.expires_at = self.expires_at.max(now + lease);
        if self.token.is_some() {
            return Ok(());
        }
        // The store tells a token to an acquire only. After a release of a moment ago it takes the lock again, so it is short.
        let mut claim = self.claim(locks);
        claim.ttl = MIN_FIXED_TTL;
        let origin = locks.origin();
        let info = HolderInfo::new(Arc::clone(&origin.host), origin.pid, format!("{LEASE}{}", self.holder));
        let mut request = AcquireRequest::new(claim, info);
        (request.repeated, request.execute_within) = (true, within);
        let command = Arc::clone(&engine.backend).try_acquire(request);
        match engine.send("acquire", &self.key, within, command).await? {
            Attempt::Granted { token, .. } => self.token = Some(token),
            _ => return Err(LockError::lost(LossReason::Stolen).with_key(&self.key)),
        }
        Ok(())
    }

    /// Releases the lease. The next waiter gets the lock.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store did not answer: the lease may have
    /// been released, and the call can be repeated.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was released.
    pub async fn release(&self, locks: &LockManager) -> Result<ReleaseOutcome> {
        let (engine, now) = (locks.engine_here()?, wall_clock());
        let command = Arc::clone(&engine.backend).release(Release::new(self.claim(locks)));
        Ok(match engine.send("release", &self.key, command_timeout(self.ttl), command).await? {
            Freed::Released => ReleaseOutcome::Released,
            Freed::NotHeld => ReleaseOutcome::AlreadyLost(self.loss(now)),
        })
    }

    fn claim(&self, locks: &LockManager) -> Claim {
        let durability = locks.options().durability.unwrap_or_else(|| locks.engine().backend.durability());
        let mut claim = Claim::new(self.key.clone(), self.ttl).with_durability(durability);
        claim.owner = self.owner;
        claim
    }

    fn loss(&self, now: SystemTime) -> LossReason {
        if now >= self.expires_at { LossReason::Expired } else { LossReason::Stolen }
    }
}
