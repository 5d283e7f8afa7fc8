//! A lock that outlives its process, for work that several processes do one after the other.
//!
//! Use a guard ([`LockManager::lock`]) instead if one process does all of the work: a guard is renewed by itself, and it
//! says when it is lost. A [`Lease`] is for the steps of a CI job, for a shell session, or for a coding agent.

mod text;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::engine::claim::free::{ReleaseOutcome, settled_at};
use crate::engine::claim::spec::OnWaiting;
use crate::engine::claim::tag::LeaseTag;
use crate::engine::shared::{Caller, Engine};
use crate::engine::watch::watchdog;
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Freed, Release, Renewal};
use lock_store::contract::event::WaitProgress;
use lock_store::types::error::{LockError, LockErrorKind, LossReason, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::{LockOptions, MAX_TTL, MIN_FIXED_TTL, Renew, Wait, command_timeout};
use lock_store::types::owner::{HolderInfo, OwnerId};
use lock_store::types::system::clock::wall_clock;

/// How often an acquire turns to the lease of the same holder and finds it gone, at most.
const ROUNDS: u32 = 10;

pub use text::{MAX_HOLDER, check_holder, of_site};

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

/// A lease that is not taken yet, or one that is looked for by the name of its holder. Made by [`LockManager::lease`].
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
        let engine = self.manager.engine_here()?;
        let (started, mut rounds) = (engine.clock.now(), 0);
        loop {
            rounds += 1;
            let found = match self.manager.holder_of(key.clone()).await {
                // A store that is away is waited for below.
                Err(error) if error.kind() == LockErrorKind::Unavailable => None,
                found => found?,
            };
            if let Some(holder) = found
                && let Some(owner) = holder.owner.filter(|owner| tag.is_of(Some(*owner)))
            {
                if self.exclusive {
                    return Err(LockError::busy(Some(holder)).with_key(&key));
                }
                if let Some(lease) = self.take_up(engine, &key, owner).await? {
                    return Ok(lease);
                }
            }
            let mut options = self.options.clone();
            if let Some(limit) = options.wait.limit() {
                options.wait = limit.saturating_sub(engine.clock.now().since(started)).into();
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

    /// Renews the lease of this holder, for the ttl of this request. Returns `None` if the holder does not have it. A
    /// renewal never shortens a lease.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`] if the store did not answer: the lease may have been renewed. Also `InvalidKey` and
    /// `Misconfigured`.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was renewed.
    pub async fn renew(self) -> Result<Option<Lease>> {
        let (key, tag) = self.checked()?;
        let engine = self.manager.engine_here()?;
        let Some(holder) = self.manager.holder_of(key.clone()).await? else { return Ok(None) };
        let Some(owner) = holder.owner.filter(|owner| tag.is_of(Some(*owner))) else { return Ok(None) };
        let lease = self.lease_of(&key, owner, holder.token);
        Ok(renew(engine, self.claim(engine, &key, owner)).await?.then_some(lease))
    }

    /// Releases the lease of this holder. Returns `false` if the holder does not have it.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`] if the store did not answer: the lease may have been released, and the call can be
    /// repeated. Also `InvalidKey` and `Misconfigured`.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was released.
    pub async fn release(self) -> Result<bool> {
        let (key, tag) = self.checked()?;
        let engine = self.manager.engine_here()?;
        let holder = self.manager.holder_of(key.clone()).await?;
        match holder.and_then(|holder| holder.owner).filter(|owner| tag.is_of(Some(*owner))) {
            Some(owner) => release(engine, self.claim(engine, &key, owner)).await,
            None => Ok(false),
        }
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

    fn claim(&self, engine: &Engine, key: &LockKey, owner: OwnerId) -> Claim {
        claim(engine, key, owner, &self.options)
    }

    fn lease_of(&self, key: &LockKey, owner: OwnerId, token: Option<FencingToken>) -> Lease {
        let (key, holder, ttl) = (key.clone(), self.holder.clone(), self.options.ttl);
        Lease { key, holder, owner, token, ttl, expires_at: wall_clock() + ttl }
    }

    /// Renews a lease that the holder has, and draws a token. `None` if it has just ended.
    async fn take_up(&self, engine: &Arc<Engine>, key: &LockKey, owner: OwnerId) -> Result<Option<Lease>> {
        let claim = self.claim(engine, key, owner);
        // First only a renewal: an acquire would also take a lock that was released a moment ago.
        if !renew(engine, claim.clone()).await? {
            return Ok(None);
        }
        let lease = self.lease_of(key, owner, None);
        let origin = self.manager.origin();
        let info = HolderInfo::new(Arc::clone(&origin.host), origin.pid, self.seen_as());
        let mut request = AcquireRequest::new(claim, info);
        (request.repeated, request.execute_within) = (true, self.options.command_timeout());
        let until = engine.clock.now().after(request.execute_within);
        let command = engine.route(Caller::Async, Arc::clone(&engine.backend).try_acquire(request));
        match engine.bounded("acquire", key, until, command).await.map_err(|error| error.with_key(key))? {
            Attempt::Granted { token } => Ok(Some(Lease { token: Some(token), ..lease })),
            _ => Ok(None),
        }
    }

    /// Turns a guard into a lease. If the lease cannot be confirmed, the guard releases the lock.
    async fn keep(&self, guard: LockGuard) -> Result<Lease> {
        let owned = guard.into_first();
        let (engine, hold) = (Arc::clone(owned.engine()), Arc::clone(&owned.hold));
        // An earlier send that was never answered could take the lock again, after a process has released the lease.
        engine.timer.sleep_until(settled_at(&hold.lease)).await;
        let lease = self.lease_of(&hold.events.key, hold.lease.claim.owner, Some(hold.token));
        // A grant that came through the queue is short.
        watchdog::extend(&engine, &hold.lease, self.options.ttl).await?;
        hold.ensure_held()?;
        owned.leave();
        Ok(lease)
    }
}

/// A lock that stays taken until it is released, or until its ttl has passed since the last renewal. Use a
/// [`LockGuard`](crate::LockGuard) instead if one process does all of the work.
///
/// It is plain data, and dropping it releases nothing. `Display` writes it as text for another process, `FromStr` reads
/// it, and so does `serde` (feature `serde`). The text proves ownership, so keep it as secret as a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    key: LockKey,
    holder: String,
    owner: OwnerId,
    token: Option<FencingToken>,
    ttl: Duration,
    expires_at: SystemTime,
}

impl Lease {
    /// Returns the key, as the store has it.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the name of the holder.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the fencing token. `None` from Redis after [`LeaseRequest::renew`]: only the acquire knows it.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns how long the lease lasts after each renewal.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns when the lease ends unless it is renewed, by the clock of this machine. An earlier, longer lease may last
    /// longer.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }

    /// Renews the lease for its ttl. A renewal never shortens a lease.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`] if the lease has ended, was released, or was taken away: stop the work.
    /// [`LockErrorKind::Unavailable`] if the store did not answer: try again before [`expires_at`](Self::expires_at).
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was renewed.
    pub async fn renew(&mut self, locks: &LockManager) -> Result<()> {
        let engine = locks.engine_here()?;
        let now = wall_clock();
        if renew(engine, self.claim(locks)).await? {
            self.expires_at = self.expires_at.max(now + self.ttl);
            return Ok(());
        }
        Err(LockError::lost(self.loss(now)).with_key(&self.key))
    }

    /// Releases the lease.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`] if the store did not answer: the lease may have been released, and the call can be
    /// repeated.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the lease was released.
    pub async fn release(&self, locks: &LockManager) -> Result<ReleaseOutcome> {
        let engine = locks.engine_here()?;
        let now = wall_clock();
        let released = release(engine, self.claim(locks)).await?;
        Ok(if released { ReleaseOutcome::Released } else { ReleaseOutcome::AlreadyLost(self.loss(now)) })
    }

    fn claim(&self, locks: &LockManager) -> Claim {
        let mut options = locks.options().clone();
        options.ttl = self.ttl;
        claim(locks.engine(), &self.key, self.owner, &options)
    }

    fn loss(&self, now: SystemTime) -> LossReason {
        if now >= self.expires_at { LossReason::Expired } else { LossReason::Stolen }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key)
            .field("holder", &self.holder)
            .field("token", &self.token)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

fn claim(engine: &Engine, key: &LockKey, owner: OwnerId, options: &LockOptions) -> Claim {
    let durability = options.durability.unwrap_or_else(|| engine.backend.durability());
    let mut claim = Claim::new(key.clone(), options.ttl).with_durability(durability);
    claim.owner = owner;
    claim
}

/// Renews a claim. Returns false if it does not have the lock.
async fn renew(engine: &Arc<Engine>, claim: Claim) -> Result<bool> {
    let (key, until) = (claim.key.clone(), engine.clock.now().after(command_timeout(claim.ttl)));
    let asked = Arc::clone(&engine.backend).renew(vec![claim]);
    let command = engine.route(Caller::Async, Box::pin(async move { Ok(asked.await) }));
    let answer = engine.bounded("renew", &key, until, command).await.map(|mut answers| answers.pop());
    match answer {
        Ok(Some(Ok(renewal))) => Ok(renewal != Renewal::Lost),
        Ok(Some(Err(error))) | Err(error) => Err(error.with_key(&key)),
        Ok(None) => Err(LockError::unavailable("the store gave no answer").with_key(&key)),
    }
}

/// Releases a claim. Returns false if it does not have the lock.
async fn release(engine: &Arc<Engine>, claim: Claim) -> Result<bool> {
    let (key, until) = (claim.key.clone(), engine.clock.now().after(command_timeout(claim.ttl)));
    let command = engine.route(Caller::Async, Arc::clone(&engine.backend).release(Release::new(claim)));
    let freed = engine.bounded("release", &key, until, command).await.map_err(|error| error.with_key(&key))?;
    Ok(freed == Freed::Released)
}
