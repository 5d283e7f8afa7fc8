//! Checks whether the store would grant the first lock, before a caller needs it.

use std::sync::Arc;
use std::time::Duration;

use crate::api::manager::{LockManager, LockManagerBuilder};
use crate::engine::shared::Caller;
use lock_store::contract::backend::{AcquireRequest, Claim, Release};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::owner::HolderInfo;

/// The longest lease of the trial lock. It is shorter if the manager's leases are shorter.
const TTL: Duration = Duration::from_secs(6);

/// How long the trial may take: longer than a confirmation by replicas that do not answer.
const WITHIN: Duration = Duration::from_secs(5);

impl LockManagerBuilder {
    /// Builds the manager, checks that the store answers, and tries whether it grants a lock.
    ///
    /// A problem that would fail the first lock is a warning in the log. Examples are a replica that takes no writes, a
    /// full memory, missing replicas for `acks=2`, or a missing permission of the user. With [`strict`](Self::strict),
    /// the problem is the error of this call.
    ///
    /// ```
    /// # use lock_core::LockManager;
    /// # async fn demo() -> Result<(), lock_core::LockError> {
    /// let locks = LockManager::builder_for("memory://")?.strict().connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`build`](Self::build) and [`LockManager::ping`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the trial lock ends by itself within 6 s.
    pub async fn connect(self) -> Result<LockManager> {
        let strict = self.is_strict();
        let manager = self.build()?;
        manager.ping().await?;
        match manager.try_out().await {
            Err(error) if strict => return Err(error),
            Err(error) => tracing::warn!(
                %error,
                "locks cannot be taken here now: unless this changes, the next request fails in the same way",
            ),
            Ok(()) => {}
        }
        Ok(manager)
    }
}

impl LockManager {
    /// Takes a lock that no other caller needs, and releases it.
    async fn try_out(&self) -> Result<()> {
        let engine = self.engine_here()?;
        // Without a prefix, the names of the user's keys are unknown. This name follows the documentation.
        let has_prefix = !self.key_prefix().is_empty();
        let key = self.key(if has_prefix { "distributed-lock:check" } else { "lock:distributed-lock:check" })?;
        let origin = self.origin();
        let info = HolderInfo::new(Arc::clone(&origin.host), origin.pid, "LockManager::connect");
        engine.check(self.options())?;
        let durability = self.options().durability.unwrap_or_else(|| engine.backend.durability());
        let claim = Claim::new(key.clone(), TTL.min(self.options().ttl)).with_durability(durability);
        let until = engine.clock.now().after(WITHIN);
        let acquire = Arc::clone(&engine.backend).try_acquire(AcquireRequest::new(claim.clone(), info));
        let acquired = engine.bounded("acquire", &key, until, engine.route(Caller::Async, acquire)).await;
        // Release also after an error, which may leave open whether the lock was taken. Another process that tries at
        // the same time briefly has the lock.
        let release = Arc::clone(&engine.backend).release(Release::new(claim));
        let released = engine.bounded("release", &key, until, engine.route(Caller::Async, release)).await;
        match acquired.and(released.map(drop)) {
            Err(error) if !has_prefix && is_about_its_key(&error, &key) => Ok(()),
            tried => tried,
        }
    }
}

/// Returns whether the error is about this key alone. The user may then be allowed to use other keys.
fn is_about_its_key(error: &LockError, key: &LockKey) -> bool {
    let text = error.to_string();
    let is_refused = error.kind() == LockErrorKind::Misconfigured && text.contains("NOPERM");
    is_refused && (text.contains("one of the keys") || text.contains(&format!("'{key}'")))
}
