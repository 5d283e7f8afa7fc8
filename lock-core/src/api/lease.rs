//! A lock that outlives its process, for work that several processes do one after the other.
//!
//! Use a guard ([`LockManager::lock`]) instead if one process does all of the work: a guard is renewed by itself, and it
//! says when it is lost.

mod held;
mod text;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::engine::claim::free::settled_at;
use crate::engine::claim::spec::OnWaiting;
use crate::engine::claim::tag::LeaseTag;
use crate::engine::watch::watchdog;
use lock_store::contract::backend::{AcquireRequest, Attempt};
use lock_store::contract::event::WaitProgress;
use lock_store::types::error::{LockError, LockErrorKind, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::{LockOptions, MAX_TTL, MIN_FIXED_TTL, Renew, Wait};
use lock_store::types::owner::{HolderInfo, OwnerId};
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
        let mut options = self.options().clone();
        (options.renew, options.handoff) = (Renew::Off, false);
        (options.max_hold, options.min_hold, options.release_in_background) = (None, Duration::ZERO, false);
        LeaseRequest {
            manager: self.clone(),
            key: self.key(key),
            holder: String::new(),
            reason: String::new(),
            options,
            exclusive: false,
            on_waiting: None,
            called_from: Location::caller(),
        }
    }
}

/// A lease that is not taken yet, or one that is looked for by the name of its holder. Made by
/// [`LockManager::lease`], which has the example of [`LeaseRequest`].
#[must_use = "nothing is leased until acquire is awaited"]
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    manager: LockManager,
    key: Result<LockKey>,
    holder: String,
    reason: String,
    options: LockOptions,
    exclusive: bool,
    on_waiting: Option<OnWaiting>,
    called_from: &'static Location<'static>,
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
        self.options.ttl = ttl;
        self
    }

    /// Sets how long to wait for a lock that is taken. Default: the manager's wait.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.options.wait = wait.into();
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
        self.on_waiting = Some(OnWaiting(Arc::new(tell)));
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
        let (key, tag) = self.checked()?;
        let clock = &self.manager.engine_here()?.clock;
        let (started, mut rounds) = (clock.now(), 0);
        loop {
            rounds += 1;
            // The request below names a holder that is in the way, and tells any error of the store.
            let found = if self.exclusive { None } else { self.find().await.ok().flatten() };
            if let Some(lease) = found {
                match self.take_up(lease).await {
                    // It has just ended.
                    Err(error) if error.kind() == LockErrorKind::Lost => {}
                    taken => return taken,
                }
            }
            let mut options = self.options.clone();
            if let Some(limit) = options.wait.limit() {
                options.wait = limit.saturating_sub(clock.now().since(started)).into();
            }
            let request = LockRequest::new(self.manager.clone(), Ok(RequestedKeys::One(key.clone())));
            let request = request.on_behalf_of(self.called_from, options).seen_as(self.seen_as());
            match request.for_a_lease(tag, self.on_waiting.clone()).await {
                Ok(guard) => return self.keep(guard).await,
                // Another process of the same holder took it meanwhile.
                Err(error)
                    if rounds < ROUNDS
                        && !self.exclusive
                        && tag.is_of(error.holder().and_then(|holder| holder.owner)) => {}
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
        let Some(holder) = self.manager.holder_of(key.clone()).await? else { return Ok(None) };
        let Some(owner) = holder.owner.filter(|owner| tag.is_of(Some(*owner))) else { return Ok(None) };
        let mut lease = self.lease_of(key, owner, holder.token);
        lease.expires_at = wall_clock() + holder.ttl_left.unwrap_or_default().min(MAX_TTL);
        Ok(Some(lease))
    }

    fn checked(&self) -> Result<(LockKey, LeaseTag)> {
        let key = self.key.clone()?;
        let wrong = |why: String| Err(LockError::misconfigured(why).with_key(&key));
        if let Err(why) = check_holder(&self.holder) {
            return wrong(why);
        }
        let ttl = self.options.ttl;
        if !(MIN_FIXED_TTL..=MAX_TTL).contains(&ttl) {
            return wrong(format!("a lease of {ttl:?} is out of bounds; use between {MIN_FIXED_TTL:?} and 30 days"));
        }
        if !self.manager.engine().queues {
            return wrong(
                "a quorum and other stores without a queue keep no leases; use one Redis server, Sentinel, a \
                          cluster, PostgreSQL or memory"
                    .to_owned(),
            );
        }
        let tag = LeaseTag::of(&key, &self.holder);
        Ok((key, tag))
    }

    fn seen_as(&self) -> Arc<str> {
        text::site(&self.holder, &self.reason).into()
    }

    fn lease_of(&self, key: LockKey, owner: OwnerId, token: Option<FencingToken>) -> Lease {
        let (holder, ttl) = (self.holder.clone(), self.options.ttl);
        Lease { key, holder, token, ttl, expires_at: wall_clock() + ttl, owner }
    }

    /// Renews a lease that the holder has, and draws a token.
    async fn take_up(&self, mut lease: Lease) -> Result<Lease> {
        // First only a renewal: an acquire would also take a lock that was released a moment ago.
        lease.renew(&self.manager).await?;
        let (engine, origin) = (self.manager.engine_here()?, self.manager.origin());
        let info = HolderInfo::new(Arc::clone(&origin.host), origin.pid, self.seen_as());
        let mut request = AcquireRequest::new(lease.claim(&self.manager), info);
        (request.repeated, request.execute_within) = (true, self.options.command_timeout());
        let (within, command) = (request.execute_within, Arc::clone(&engine.backend).try_acquire(request));
        match held::send(engine, "acquire", &lease.key, within, command).await? {
            Attempt::Granted { token } => Ok(Lease { token: Some(token), ..lease }),
            _ => Err(LockError::lost(LossReason::Stolen).with_key(&lease.key)),
        }
    }

    /// Turns a guard into a lease. If the lease cannot be confirmed, the guard releases the lock.
    async fn keep(&self, guard: LockGuard) -> Result<Lease> {
        let owned = guard.into_first();
        let (engine, hold) = (Arc::clone(owned.engine()), Arc::clone(&owned.hold));
        // An earlier send that was never answered could take the lock again, after a process has released the lease.
        engine.timer.sleep_until(settled_at(&hold.lease)).await;
        let lease = self.lease_of(hold.events.key.clone(), hold.lease.claim.owner, Some(hold.token));
        // A grant that came through the queue is short.
        watchdog::extend(&engine, &hold.lease, self.options.ttl).await?;
        hold.ensure_held()?;
        owned.leave();
        Ok(lease)
    }
}
