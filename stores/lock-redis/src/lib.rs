//! Locks on a Redis server, on the master that sentinels name, or on the masters of a Redis Cluster.

mod batch;
mod builder;
mod calls;
mod cluster;
mod connection;
#[cfg(feature = "inspect")]
mod doctor;
mod error;
#[cfg(feature = "inspect")]
#[doc(hidden)]
pub mod inspect;
#[doc(hidden)]
pub mod layout;
mod masters;
mod on_drop;
mod protocol;
mod sentinel;
mod server;
mod services;

pub use crate::builder::RedisStoreBuilder;
pub use crate::connection::credentials::Credentials;

use std::fmt;
use std::future::Future;

use crate::calls::acquire::{TryAcquire, TryAcquireAll};
use crate::calls::release::{End, Free};
use crate::calls::run::Operation;
use crate::connection::certificates;
use crate::connection::connect::Settings;
use crate::masters::Masters;
use crate::protocol::steps::read_holder;
use lock_store::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, BlockedNotes, Capabilities, Claim, DoneMarks, Freed, Inbox, JobRecords,
    LockBackend, QuorumMember, Release, Renewal, SharedClaims,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Durability;
use lock_store::types::owner::Holder;
use lock_store::types::url::{StoreUrl, explained};

/// A store on a Redis server, version 6.2 or later, on the master that Redis Sentinel names, or on the masters of a Redis
/// Cluster.
///
/// A lock is a plain string at exactly the key the user wrote, taken if absent and with an expiry.
/// Clients of the classic `SET NX PX` protocol in any language exclude it and are excluded by it.
///
/// Each tokio runtime that uses the store gets its own connection, opened at the first call. A
/// manager adds one that listens, and one to each master of a cluster at which it waits.
///
/// A server of version 7 or later that permits `CLIENT TRACKING` and `MGET` reports within
/// milliseconds that a lock was deleted, overwritten, evicted or expired, and reports `FLUSHALL` too.
/// That covers every lock that has been held for a fifth of a second, with or without renewal.
/// A lock that others join and leave all the time, as readers and permits do, is looked at less and less often then.
/// Otherwise, and while the listening connection is down, the next renewal finds out.
///
/// # Permissions
///
/// For keys that begin with `lock:`, a user needs no more than this. Each line of commands has one purpose: the
/// first is for holding locks; the second for waiting without polling; the third for learning of losses at once,
/// having a name in `CLIENT LIST`, and taking free locks without a script; the last for reading locks with
/// `FleetReader`. Its last three words are for clusters, for holding locks too.
/// `acks` also take `+wait`, `fsync` `+waitaof`; a member of a `Quorum` takes `+hgetall`,
/// `~distributed-lock:birth` and `~distributed-lock:members`. In a cluster of version 7 or later,
/// `+ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub` keep grants from being passed on to every node. Without the
/// second and third line, waiters poll and renewals find losses. All locks of a server, or of a slot of a cluster, draw
/// their fencing tokens from one key, whatever their prefix: the last key pattern permits that.
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
/// # use lock_redis as lock_core; Ok::<(), lock_store::LockError>(())
/// ```
pub struct RedisStore {
    masters: Masters,
    /// The same servers, for those who read the locks of a fleet.
    #[cfg(feature = "inspect")]
    servers: std::sync::OnceLock<inspect::servers::Servers>,
}

impl RedisStore {
    /// Names a server by its URL. Opens nothing yet.
    ///
    /// Accepts `redis://[user][:password@]host[:port][/db]`, the same with `rediss://` for TLS
    /// (cargo feature `tls`), and `redis+unix:///path[?db=n&user=…&pass=…]` (or `unix://`).
    ///
    /// A master behind Redis Sentinel is
    /// `redis+sentinel://[user:password@]host[:26379],host…/service[/db]`, or `rediss+sentinel://` for TLS. User and
    /// password are the master's. Sentinels with credentials of their own take `?sentinel_user=…&sentinel_password=…`,
    /// and `sentinel_tls=no` if they do not speak TLS as the master does. One host is enough: others are learnt from
    /// it. `nat=10.0.0.1:6379>203.0.113.1:7001,…` reaches an announced address at another one. Callers do not notice a
    /// failover that ends within their wait; a holder whose lock it lost is told so
    /// ([`LossReason::Failover`](lock_store::LossReason::Failover)).
    ///
    /// For a Redis Cluster, accepts `redis+cluster://[user:password@]host[:port],host…`, or `rediss+cluster://` for TLS:
    /// some of its nodes, which tell of the others. If the addresses that they announce are reached at others, say so
    /// by `?nat=announced>reached,…`.
    ///
    /// All take `?acks=1` (or `all`, for sentinels and clusters) or `?fsync=local` (or `1`), the default [`Durability`] of locks. With `?acks=0`,
    /// a lock that a failover loses is harmless, and no warning says that replicas are not waited for.
    /// URLs over TLS take the files (PEM) of an authority that is trusted instead of the machine's, and of a
    /// client certificate: `?ca=FILE`, `?cert=FILE&cert_key=FILE`. They are read here, and again for each connection, so a renewed file
    /// is used without a restart. If a file cannot be used, that is logged, and the last good one stays. In a path, `&`, `#`, `?`, `@` and `%` are
    /// percent-encoded.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) if the URL or a file cannot be read or its scheme is not compiled in.
    /// The message never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// Names a server by its URL, which is read already.
    #[doc(hidden)]
    pub fn read(url: StoreUrl) -> Result<Self> {
        RedisStoreBuilder::of(url).build()
    }

    /// Reads a URL. Opens nothing yet.
    fn parse(mut url: StoreUrl, mut settings: Settings) -> Result<Self> {
        certificates::take(&mut url, &mut settings)?;
        let text = url.to_text();
        let masters = Masters::parse(url, settings).map_err(|error| explained(error, &text))?;
        Ok(Self::over(masters))
    }

    fn over(masters: Masters) -> Self {
        Self {
            masters,
            #[cfg(feature = "inspect")]
            servers: std::sync::OnceLock::new(),
        }
    }

    /// Does something with a lock where the lock is.
    fn run<O: Operation>(&self, operation: O) -> impl Future<Output = Result<O::Answer>> + Send {
        self.masters.run(operation)
    }

    /// Returns how many runtimes have a connection now, open or being opened. For tests. In a cluster
    /// each counts once for each of its masters.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn connections(&self) -> usize {
        self.masters.all().map(|node| node.pool.connections()).sum()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.masters.name())
    }
}

// The optional parts stand beside their steps. A call for every lock returns the future of its step, instead of
// another future around it.
impl LockBackend for RedisStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled().with_queue();
        (known.durability, known.modes) = (true, true);
        known.push_loss = self.masters.all().any(|node| node.listeners.can_hear());
        known
    }

    fn lane(&self, key: &LockKey) -> u16 {
        self.masters.lane(key).unwrap_or(0)
    }

    fn durability(&self) -> Durability {
        self.masters.first().durability
    }

    fn node(&self, lane: u16) -> &str {
        self.masters.at(lane).unwrap_or(self.masters.first()).name()
    }

    fn failovers(&self, lane: u16) -> u64 {
        // Another number too when the same server has another history than before.
        let changes = self.masters.at(lane).map_or(0, |node| node.pool.history.changes());
        (self.masters.takeovers(lane) << 32) + changes
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.masters.drive(&inbox).await
    }

    async fn ping(&self) -> Result<()> {
        self.masters.reach().await
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        let master = self.masters.lane(key).and_then(|lane| self.masters.at(lane));
        master.is_some_and(|node| node.collisions.is_contended(key))
    }

    fn try_acquire(&self, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send {
        self.run(TryAcquire(request, None))
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        let Some(first) = requests.first() else { return Ok(AttemptAll::Apart) };
        if !self.masters.serve_together(requests) {
            return Ok(AttemptAll::Apart);
        }
        let keys = requests.iter().map(|request| &request.claim.key);
        self.masters.run_all(TryAcquireAll(first, requests), keys).await
    }

    fn requeue(&self, release: &Release, request: &AcquireRequest) -> impl Future<Output = Result<Attempt>> + Send {
        self.run(TryAcquire(request, Some(release)))
    }

    fn renew(&self, one_lane: &[Claim]) -> impl Future<Output = Vec<Result<Renewal>>> + Send {
        self.masters.renew(one_lane)
    }

    fn release(&self, release: &Release) -> impl Future<Output = Result<Freed>> + Send {
        self.run(Free(End::Release, release))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.run(Free(End::Withdraw, &Release::new(claim.clone()))).await
    }

    fn holder(&self, key: &LockKey) -> impl Future<Output = Result<Option<Holder>>> + Send {
        self.run(read_holder(key))
    }

    lock_store::has_parts! {
        shared: SharedClaims, member: QuorumMember,
        blocking: BlockedNotes, jobs: JobRecords, marks: DoneMarks
    }

    #[cfg(feature = "inspect")]
    lock_store::has_parts! {
        doctor: lock_store::contract::backend::Doctor, inspector: lock_store::contract::backend::Inspector
    }
}

#[cfg(test)]
mod tests;
