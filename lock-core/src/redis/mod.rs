//! Locks on one Redis server.

mod acquire;
mod builder;
mod clock;
mod coalesce;
mod collisions;
mod connect;
mod credentials;
mod error;
mod exchange;
mod inline_task;
#[cfg(feature = "inspect")]
pub mod inspect;
mod keys;
mod link;
mod pool;
mod push;
mod release;
mod renew;
mod renewals;
mod script;
mod settings;
mod steps;
mod unsettled;
mod value;

pub use builder::RedisStoreBuilder;
pub use credentials::Credentials;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{RedisError, Value};

use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, Capabilities, Claim, Freed, Inbox, LockBackend, Release, Renewal,
};
use crate::clock::{Clock, jitter};
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::Notice;
use crate::key::LockKey;
use crate::owner::Holder;
use crate::redis::clock::Floor;
use crate::redis::collisions::Collisions;
use crate::redis::connect::Target;
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::redis::pool::Pool;
use crate::redis::push::ChangeListeners;
use crate::redis::renewals::Renewals;

/// The upper limits of the pause before reconnecting: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A store on one Redis server, version 6.2 or later.
///
/// A lock is a plain string at exactly the key the user wrote, taken if absent and with an expiry.
/// Clients of the classic `SET NX PX` protocol in any language exclude it and are excluded by it.
///
/// Each tokio runtime that uses the store gets its own connection, opened at the first call. A
/// manager adds one that listens.
///
/// A server of version 7 or later that permits `CLIENT TRACKING` and `MGET` reports within
/// milliseconds that a lock was deleted, overwritten, evicted or expired, and reports `FLUSHALL` too.
/// That covers every lock that has been held for a fifth of a second, with or without renewal.
/// Otherwise, and while the listening connection is down, the next renewal finds out.
///
/// # Permissions
///
/// For keys that begin with `lock:`, a user needs no more than this. Each line of commands has one purpose: the
/// first is for holding locks; the second for waiting without polling; the third for learning of losses at once,
/// having a name in `CLIENT LIST`, and taking free locks without a script; the last for reading locks with
/// [`FleetReader`](crate::inspect::FleetReader), where its last three words are for clusters. Without the second and
/// third, waiters poll and renewals find losses. All locks of a server draw their fencing tokens from one key,
/// whatever their prefix: the last key pattern permits that.
///
/// ```text
#[doc = include_str!("acl.txt")]
/// ```
///
/// ```
/// use lock_core::RedisStore;
///
/// let store = RedisStore::new("redis://:s3cret@127.0.0.1:6379/2")?;
/// assert_eq!(format!("{store:?}"), "RedisStore(127.0.0.1:6379/2)");
/// # Ok::<(), lock_core::LockError>(())
/// ```
pub struct RedisStore {
    pool: Pool,
    listeners: ChangeListeners,
    /// The newest token of the server that this process knows.
    floor: Floor,
    collisions: Collisions,
    renewals: Renewals,
    /// Whether the server's eviction policy has been logged.
    warned_of_eviction: AtomicBool,
}

impl RedisStore {
    /// Names a server by its URL. Opens nothing yet.
    ///
    /// Accepts `redis://[user][:password@]host[:port][/db]`, the same with `rediss://` for TLS
    /// (cargo feature `tls`), and `redis+unix:///path[?db=n&user=…&pass=…]` (or `unix://`).
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`] if the URL cannot be read or its scheme is not compiled in.
    /// The message never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    fn at(target: Target) -> Self {
        Self {
            pool: Pool::new(target),
            listeners: ChangeListeners::default(),
            floor: Floor::default(),
            collisions: Collisions::default(),
            renewals: Renewals::default(),
            warned_of_eviction: AtomicBool::new(false),
        }
    }

    /// Returns how many runtimes have a connection now, open or being opened. For tests.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.connections()
    }

    async fn read_holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let call = steps::holder(&Keys::of(key)?);
        let connection = self.pool.connection().await?;
        let answer = connection.link.eval(&call).await.map_err(|error| self.failed("look at the holder", &error))?;
        steps::read_holder(&answer).ok_or_else(|| self.unreadable("look at the holder"))
    }

    /// Reports whether the server may evict locks when its memory is full.
    async fn check_eviction(&self, link: &Link, inbox: &Inbox) {
        let Some(policy) = eviction_policy(link).await else { return };
        inbox.notice(&Notice::EvictionPolicy { node: self.pool.node(), policy: &policy });
        if policy != "noeviction" && !self.warned_of_eviction.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                node = self.pool.node(),
                policy,
                "this server evicts keys when its memory is full, and locks are the first to go; \
                 set maxmemory-policy to noeviction",
            );
        }
    }

    /// Keeps a connection open on the keeper, and ends only when that can never succeed.
    async fn keep_connected(&self, inbox: &Inbox) -> LockError {
        let clock = Clock::system();
        let node = self.pool.node();
        let (mut was_up, mut told_down, mut pause) = (false, false, BACKOFF.0);
        loop {
            match self.pool.connection().await {
                Ok(connection) => {
                    let link = &connection.link;
                    inbox.notice(&Notice::Connection { node, up: true });
                    tracing::debug!(node, generation = link.generation, "connected");
                    if was_up {
                        inbox.reconnected();
                    }
                    (was_up, told_down) = (true, false);
                    let opened_at = clock.now();
                    let (mut gone, mut retirements) = (link.gone(), self.pool.retirements());
                    self.check_eviction(link, inbox).await;
                    // Dropped here, because a connection that was given up must be able to close.
                    drop(connection);
                    tokio::select! {
                        _ = gone.changed() => {}
                        _ = retirements.changed() => {}
                    }
                    // One that is closed as it opens is no success.
                    if clock.now().since(opened_at) >= BACKOFF.1 {
                        pause = BACKOFF.0;
                    }
                    tracing::debug!(node, "disconnected");
                }
                Err(error) if error.kind() == LockErrorKind::Misconfigured => return error,
                Err(error) => tracing::debug!(node, %error, "cannot connect"),
            }
            if !told_down {
                inbox.notice(&Notice::Connection { node, up: false });
                told_down = true;
            }
            // Full jitter, so that the processes of a fleet do not reconnect at the same moment.
            clock.sleep_until(clock.now().after(jitter(Duration::from_millis(1), pause))).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    fn failed(&self, op: &str, error: &RedisError) -> LockError {
        let text = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        self.retire_if_demoted(&text);
        error::executing(self.pool.node(), op, error)
    }

    /// The same for an error that a script answered.
    fn script_failed(&self, op: &str, text: &str) -> LockError {
        self.retire_if_demoted(text);
        error::answered(self.pool.node(), op, text)
    }

    fn retire_if_demoted(&self, text: &str) {
        if error::is_of_replica(text) {
            self.pool.retire();
        }
    }

    fn unreadable(&self, op: &str) -> LockError {
        error::unreadable(self.pool.node(), op)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.pool.node())
    }
}

impl LockBackend for RedisStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        let known = Capabilities::polled().with_queue();
        if self.listeners.can_hear() { known.with_push_loss() } else { known }
    }

    fn node(&self, _lane: u16) -> &str {
        self.pool.node()
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        tokio::select! {
            error = self.keep_connected(&inbox) => error,
            () = self.rotate_credentials() => LockError::unavailable("renewing the credentials ended"),
            () = self.listen(&inbox) => LockError::unavailable("listening for grants ended"),
        }
    }

    async fn ping(&self) -> Result<()> {
        // Opening a connection logs in and reads the server's time.
        self.pool.connection().await.map(drop)
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.acquire(request, None).await.map_err(|error| error.with_key(&request.claim.key))
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        self.acquire_all(requests).await
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        self.acquire(request, Some(release)).await.map_err(|error| error.with_key(&request.claim.key))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        self.renew_all(one_lane).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.free("release", release).await.map_err(|error| error.with_key(&release.claim.key))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.free("withdraw", &Release::new(claim.clone())).await.map_err(|error| error.with_key(&claim.key))
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.read_holder(key).await.map_err(|error| error.with_key(key))
    }
}

/// Asks for the eviction policy, in the way that managed servers allow if they forbid the direct
/// one.
async fn eviction_policy(link: &Link) -> Option<String> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy");
    if let Ok(Value::Map(found)) = link.send(&config).await
        && let Some((_, Value::BulkString(policy))) = found.into_iter().next()
    {
        return String::from_utf8(policy).ok();
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(|policy| policy.trim().to_owned())
}
