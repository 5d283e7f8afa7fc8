//! A lease that is held.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::manager::LockManager;
use crate::engine::claim::free::ReleaseOutcome;
use crate::engine::shared::{Caller, Engine};
use lock_store::contract::backend::{BoxFuture, Claim, Freed, Release, Renewal};
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;
use lock_store::types::owner::OwnerId;
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
    /// The fencing token. `None` from Redis after [`LeaseRequest::find`](super::LeaseRequest::find): only the acquire knows
    /// it.
    pub token: Option<FencingToken>,
    /// How long the lease lasts after each renewal.
    pub ttl: Duration,
    /// When the lease ends unless it is renewed, by the clock of this machine.
    pub expires_at: SystemTime,
    pub(super) owner: OwnerId,
}

impl Lease {
    /// Renews the lease for its ttl. A renewal never shortens a lease.
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
        let (engine, now) = (locks.engine_here()?, wall_clock());
        let asked = Arc::clone(&engine.backend).renew(vec![self.claim(locks)]);
        let command = Box::pin(async move {
            let no_answer = || Err(LockError::unavailable("the store gave no answer"));
            asked.await.pop().unwrap_or_else(no_answer)
        });
        if send(engine, "renew", &self.key, command_timeout(self.ttl), command).await? == Renewal::Lost {
            return Err(LockError::lost(self.loss(now)).with_key(&self.key));
        }
        self.expires_at = self.expires_at.max(now + self.ttl);
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
        Ok(match send(engine, "release", &self.key, command_timeout(self.ttl), command).await? {
            Freed::Released => ReleaseOutcome::Released,
            Freed::NotHeld => ReleaseOutcome::AlreadyLost(self.loss(now)),
        })
    }

    pub(super) fn claim(&self, locks: &LockManager) -> Claim {
        let durability = locks.options().durability.unwrap_or_else(|| locks.engine().backend.durability());
        let mut claim = Claim::new(self.key.clone(), self.ttl).with_durability(durability);
        claim.owner = self.owner;
        claim
    }

    fn loss(&self, now: SystemTime) -> LossReason {
        if now >= self.expires_at { LossReason::Expired } else { LossReason::Stolen }
    }
}

/// Sends a command for a lease to the store, and waits so long for the answer.
pub(super) async fn send<T: Send + 'static>(
    engine: &Engine,
    op: &'static str,
    key: &LockKey,
    within: Duration,
    command: BoxFuture<'static, Result<T>>,
) -> Result<T> {
    let until = engine.clock.now().after(within);
    let routed = engine.route(Caller::Async, command);
    engine.bounded(op, key, until, routed).await.map_err(|error| error.with_key(key))
}
