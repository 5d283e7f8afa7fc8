//! A lock that outlives its process, for work that several processes do one after the other.
//!
//! Use a guard ([`LockManager::lock`]) instead if one process does all of the work: a guard is renewed by itself, and it
//! says when it is lost.

mod held;
mod text;

use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::engine::claim::free::settled_at;
use crate::engine::claim::tag::LeaseTag;
use crate::engine::watch::watchdog;
use lock_store::contract::event::{Purpose, WaitProgress};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::{MAX_TTL, MIN_FIXED_TTL, Renew, Wait};
use lock_store::types::owner::{Holder, OwnerId};
use lock_store::types::system::clock::wall_clock;

/// How often an acquire turns to the lease of the same holder and finds it gone, at most.
const ROUNDS: u32 = 10;

pub use held::Lease;
pub use lock_store::types::owner::{command_of_site, lease_of_site as of_site};
pub use text::{MAX_HOLDER, check_holder};

impl LockManager {
    /// Asks for a lease of a key: a lock that stays taken when this process ends. Use [`lock`](Self::lock) instead if one
    /// process does all of the work.
    ///
    /// A lease excludes every lock of the same key, and waits in the same queue. It has no watchdog. It ends when it is
    /// released, or when its ttl has passed since the last renewal. Any process that knows the name of the holder can
    /// renew and release it. The store must have a queue: Redis, except a quorum, PostgreSQL, or memory.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let half_an_hour = Duration::from_secs(1800);
    /// let lease = locks.lease("deploy:prod").holder("ci-4711").ttl(half_an_hour).acquire().await?;
    /// let text = lease.to_string(); // for the next process; it proves ownership
    ///
    /// let mut lease: lock_core::lease::Lease = text.parse()?;
    /// lease.renew(&locks).await?;
    /// lease.release(&locks).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lease(&self, key: impl IntoLockKey) -> LeaseRequest {
        let key = self.key(key).map(RequestedKeys::One);
        let mut request = LockRequest::new(self.clone(), key).with_purpose(Purpose::Lease);
        let options = &mut request.options;
        (options.renew, options.handoff) = (Renew::Off, false);
        (options.max_hold, options.min_hold, options.release_in_background) = (None, Duration::ZERO, false);
        LeaseRequest { request, holder: String::new(), reason: String::new(), exclusive: false }
    }
}

/// A lease that is not taken yet, or one that is looked for by the name of its holder. Made by
/// [`LockManager::lease`], which has the example of [`LeaseRequest`].
#[must_use = "nothing is leased until acquire is awaited"]
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    request: LockRequest,
    holder: String,
    reason: String,
    exclusive: bool,
}

impl LeaseRequest {
    /// Names the holder. Required: at most [`MAX_HOLDER`] bytes, without spaces, control characters and `|`.
    ///
    /// The same name at the same key is the same holder, in every process. Take a name that no other work uses, for
    /// example the number of the CI job.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.holder = name.into();
        self
    }

    /// Sets how long the lease lasts after each renewal. Default: the manager's ttl.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.with_ttl(ttl);
        self
    }

    /// Sets how long to wait for a lock that is taken. Default: the manager's wait.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.request = self.request.with_wait(wait);
        self
    }

    /// Says what the lease is for. Waiters and operators see it, about 80 bytes of it.
    pub fn reason(mut self, text: impl Into<String>) -> Self {
        self.reason = text.into();
        self
    }

    /// Refuses to take the lease if this holder has it already. By default that renews it.
    pub fn exclusive_holder(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Calls `tell` while the request waits, like [`LockRequest::on_waiting`].
    pub fn on_waiting(mut self, tell: impl Fn(&WaitProgress) + Send + Sync + 'static) -> Self {
        self.request = self.request.on_waiting(tell);
        self
    }

    /// Takes the lease. If this holder has it already, renews it and draws a new fencing token.
    ///
    /// # Errors
    ///
    /// Like [`LockRequest::acquire`]. Also [`LockErrorKind::Busy`] if this holder has the lease already and
    /// [`exclusive_holder`](Self::exclusive_holder) was asked for.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves no new lease behind. A lease that the holder had before stays, and may have been renewed.
    pub async fn acquire(self) -> Result<Lease> {
        let (_, tag) = self.checked()?;
        let (locks, mut rounds) = (&self.request.manager, 0);
        let clock = &locks.engine_here()?.clock;
        let started = clock.now();
        let is_same = |error: &LockError| tag.is_of(error.holder().and_then(|holder| holder.owner));
        loop {
            rounds += 1;
            // The request below names a holder that is in the way, and tells any error of the store.
            if !self.exclusive
                && let Ok(Some(mut lease)) = self.find().await
            {
                // The renewal draws a new one.
                lease.token = None;
                match lease.renew(locks).await {
                    // It has just ended.
                    Err(error) if error.kind() == LockErrorKind::Lost => {}
                    renewed => return renewed.map(|()| lease),
                }
            }
            let mut request = self.request.clone().for_a_lease(tag, text::site(&self.holder, &self.reason));
            if let Some(limit) = request.options.wait.limit() {
                request.options.wait = limit.saturating_sub(clock.now().since(started)).into();
            }
            match request.await {
                Ok(guard) => return self.keep(guard).await,
                // Another process of the same holder took it meanwhile.
                Err(error) if rounds < ROUNDS && !self.exclusive && is_same(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds the lease of this holder, to renew or release it. Returns `None` if the holder does not have it. Its ttl is that
    /// of this request.
    ///
    /// # Errors
    ///
    /// Like [`LockManager::holder`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn find(&self) -> Result<Option<Lease>> {
        let (key, tag) = self.checked()?;
        let holder = self.request.manager.holder_of(key.clone()).await?.filter(|holder| tag.is_of(holder.owner));
        Ok(holder.and_then(|Holder { owner, token, ttl_left, .. }| {
            Some(self.lease_of(key, owner?, token, ttl_left.unwrap_or_default()))
        }))
    }

    fn checked(&self) -> Result<(LockKey, LeaseTag)> {
        let key = self.request.keys.as_ref().map_err(LockError::clone)?.as_slice()[0].clone();
        let (ttl, known) = (self.request.options.ttl, self.request.manager.engine().backend.capabilities());
        let wrong = if let Err(why) = check_holder(&self.holder) {
            why
        } else if !(MIN_FIXED_TTL..=MAX_TTL).contains(&ttl) {
            format!("a lease of {ttl:?} is out of bounds; use between {MIN_FIXED_TTL:?} and 30 days")
        } else if known.sessions {
            "locks in this store end with their process, so no lease can outlive it; use Redis, PostgreSQL or memory"
                .to_owned()
        } else if !known.queue {
            "leases need a store with a queue, unlike a quorum and layout=redisson; use Redis, PostgreSQL or memory"
                .to_owned()
        } else {
            let tag = LeaseTag::of(&key, &self.holder);
            return Ok((key, tag));
        };
        Err(LockError::misconfigured(wrong).with_key(&key))
    }

    fn lease_of(&self, key: LockKey, owner: OwnerId, token: Option<FencingToken>, left: Duration) -> Lease {
        let (holder, ttl, expires_at) =
            (self.holder.clone(), self.request.options.ttl, wall_clock() + left.min(MAX_TTL));
        Lease { key, holder, token, ttl, expires_at, owner }
    }

    /// Turns a guard into a lease. If the lease cannot be confirmed, the guard releases the lock.
    async fn keep(&self, guard: LockGuard) -> Result<Lease> {
        let owned = guard.into_first();
        let (engine, hold) = (Arc::clone(owned.engine()), Arc::clone(&owned.hold));
        // An earlier send that was never answered could take the lock again, after a process has released the lease.
        engine.timer.sleep_until(settled_at(&hold.lease)).await;
        let (key, owner, ttl) = (hold.events.key.clone(), hold.lease.claim.owner, self.request.options.ttl);
        let lease = self.lease_of(key, owner, Some(hold.token), ttl);
        // A grant that came through the queue is short.
        watchdog::extend(&engine, &hold.lease, ttl, true).await?;
        hold.ensure_held()?;
        owned.leave();
        Ok(lease)
    }
}
