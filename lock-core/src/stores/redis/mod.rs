//! Locks on a Redis server, on the master that sentinels name, or on the masters of a Redis Cluster.

pub(crate) mod calls;
mod clock;
mod cluster;
mod error;
#[cfg(feature = "inspect")]
pub mod inspect;
mod keys;
pub(crate) mod place;
pub(crate) mod server;
mod steps;
mod value;
pub(crate) mod wire;

pub use crate::stores::redis::place::builder::RedisStoreBuilder;
pub use crate::stores::redis::wire::credentials::Credentials;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, Blocked, BlockedNotes, Capabilities, Claim, Freed, Inbox, JobRecord,
    JobRecords, LockBackend, MemberList, QuorumMember, Release, Renewal, SharedClaims, Vote,
};
use crate::stores::redis::cluster::{Cluster, Seeds};
use crate::stores::redis::place::discovery::Place;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::wire::certificates;
use crate::stores::redis::wire::settings::Settings;
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::Durability;
use crate::types::owner::Holder;

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
/// [`FleetReader`](crate::inspect::FleetReader). Its last three words are for clusters, for holding locks too.
/// `acks` also take `+wait`, `fsync` `+waitaof`; a member of a [`Quorum`](crate::Quorum) takes `+hgetall`,
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
/// # Ok::<(), lock_core::LockError>(())
/// ```
pub struct RedisStore {
    servers: Servers,
}

/// The servers of a store.
enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
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
    /// ([`LossReason::Failover`](crate::LossReason::Failover)).
    ///
    /// For a Redis Cluster, accepts `redis+cluster://[user:password@]host[:port],host…`, or `rediss+cluster://` for TLS:
    /// some of its nodes, which tell of the others. If the addresses that they announce are reached at others, say so
    /// by `?nat=announced>reached,…`.
    ///
    /// All take `?acks=1` (or `all`, of sentinels and clusters) or `?fsync=local` (or `1`), the [`Durability`] of locks that ask
    /// for no other. Those over TLS take the files (PEM) of an authority that is trusted instead of the machine's, and of a
    /// client certificate: `?ca=FILE`, `?cert=FILE&cert_key=FILE`, read here. In a path, `&`, `#`, `?`, `@` and `%` are
    /// percent-encoded.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the URL or a file cannot be read or its scheme is not compiled in.
    /// The message never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// Reads a URL. Opens nothing yet.
    fn parse(url: &str, mut settings: Settings) -> Result<Self> {
        let url = &certificates::take(url, &mut settings)?;
        let servers = if Seeds::are_named_by(url) {
            Servers::Cluster(Arc::new(Cluster::parse(url, &settings)?))
        } else {
            let (place, durability) = Place::parse(url, settings)?;
            Servers::One(Arc::new(Node::found_at(place, durability)))
        };
        Ok(Self { servers })
    }

    async fn free(&self, op: &'static str, release: &Release) -> Result<Freed> {
        let freed = match &self.servers {
            Servers::One(node) => node.free(op, release, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.free(op, release)).await,
        };
        self.told(freed, &release.claim.key).await
    }

    /// Says of a failure which key it is about, and what to write if the URL names one node of a cluster.
    async fn told<T>(&self, answer: Result<T>, key: &LockKey) -> Result<T> {
        let Err(_) = &answer else { return answer };
        let answer = match &self.servers {
            Servers::One(node) => Box::pin(node.explain(answer)).await,
            Servers::Cluster(_) => answer,
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(Box::pin(self.name_the_type(error, key)).await.with_key(key)),
        }
    }

    /// Names the key that is of another type, if a failure is about one.
    async fn name_the_type(&self, error: LockError, key: &LockKey) -> LockError {
        match &self.servers {
            Servers::One(node) => node.name_the_type(error, key).await,
            Servers::Cluster(cluster) => cluster.name_the_type(error, key).await,
        }
    }

    /// Returns how many runtimes have a connection now, open or being opened. For tests. In a cluster
    /// each counts once for each of its masters.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn connections(&self) -> usize {
        match &self.servers {
            Servers::One(node) => node.pool.connections(),
            Servers::Cluster(cluster) => cluster.connections(),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.servers {
            Servers::One(node) => write!(f, "RedisStore({})", node.name()),
            Servers::Cluster(cluster) => write!(f, "RedisStore(cluster of {})", cluster.name()),
        }
    }
}

// What a cluster does goes to the heap, so that the futures of one server stay small.
impl LockBackend for RedisStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        let known = Capabilities::polled().with_queue().with_durability().with_modes();
        let hears = match &self.servers {
            Servers::One(node) => node.listeners.can_hear(),
            Servers::Cluster(cluster) => cluster.can_hear(),
        };
        if hears { known.with_push_loss() } else { known }
    }

    fn lane(&self, key: &LockKey) -> u16 {
        match &self.servers {
            Servers::One(_) => 0,
            Servers::Cluster(cluster) => cluster.lane(key),
        }
    }

    fn durability(&self) -> Durability {
        match &self.servers {
            Servers::One(node) => node.durability,
            Servers::Cluster(cluster) => cluster.durability,
        }
    }

    fn node(&self, lane: u16) -> &str {
        match &self.servers {
            Servers::One(node) => node.name(),
            Servers::Cluster(cluster) => cluster.node_name(lane),
        }
    }

    fn failovers(&self, lane: u16) -> u64 {
        match &self.servers {
            Servers::One(node) => node.pool.history.changes(),
            Servers::Cluster(cluster) => cluster.failovers(lane),
        }
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        match &self.servers {
            Servers::One(node) => node.drive(&inbox).await,
            Servers::Cluster(cluster) => Box::pin(cluster.drive(&inbox)).await,
        }
    }

    async fn ping(&self) -> Result<()> {
        match &self.servers {
            // Opening a connection logs in and reads the server's time.
            Servers::One(node) => node.pool.connection().await.map(drop),
            Servers::Cluster(cluster) => Box::pin(cluster.known()).await,
        }
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        match &self.servers {
            Servers::One(node) => node.collisions.is_contended(key),
            Servers::Cluster(cluster) => cluster.is_contended(key),
        }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = match &self.servers {
            Servers::One(node) => node.acquire(request, None, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.acquire(request)).await,
        };
        self.told(attempt, &request.claim.key).await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        let attempt = match &self.servers {
            Servers::One(node) => node.explain(node.acquire_all(requests).await).await,
            Servers::Cluster(cluster) => Box::pin(cluster.acquire_all(requests)).await,
        };
        let mut error = match attempt {
            Ok(attempt) => return Ok(attempt),
            Err(error) => error,
        };
        for request in requests {
            error = Box::pin(self.name_the_type(error, &request.claim.key)).await;
        }
        Err(error)
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = match &self.servers {
            Servers::One(node) => node.acquire(request, Some(release), Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.requeue(release, request)).await,
        };
        self.told(attempt, &request.claim.key).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        match &self.servers {
            Servers::One(node) => {
                let mut renewals = node.renew(one_lane).await;
                for (renewal, claim) in renewals.iter_mut().zip(one_lane).filter(|(renewal, _)| renewal.is_err()) {
                    *renewal = self.told(renewal.clone(), &claim.key).await;
                }
                renewals
            }
            Servers::Cluster(cluster) => Box::pin(cluster.renew(one_lane)).await,
        }
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.free("release", release).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.free("withdraw", &Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let holder = match &self.servers {
            Servers::One(node) => node.read_holder(key, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.holder(key)).await,
        };
        self.told(holder, key).await
    }

    fn shared(&self) -> Option<&impl SharedClaims> {
        Some(self)
    }

    fn member(&self) -> Option<&impl QuorumMember> {
        Some(self)
    }

    fn blocking(&self) -> Option<&impl BlockedNotes> {
        Some(self)
    }

    fn jobs(&self) -> Option<&impl JobRecords> {
        Some(self)
    }
}

impl SharedClaims for RedisStore {
    async fn downgrade(&self, claim: &Claim, token: FencingToken) -> Result<Renewal> {
        let downgraded = match &self.servers {
            Servers::One(node) => node.downgrade(claim, token, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.downgrade(claim, token)).await,
        };
        self.told(downgraded, &claim.key).await
    }

    async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        let holders = match &self.servers {
            Servers::One(node) => node.read_holders(key, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.holders(key)).await,
        };
        self.told(holders, key).await
    }
}

impl QuorumMember for RedisStore {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        self.only_server()?.vote_for(request).await
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        self.only_server()?.remember_list(list, keep_for).await
    }

    async fn vouch(&self) -> Result<()> {
        self.only_server()?.vouch_for_data().await
    }

    fn history(&self) -> Option<Arc<str>> {
        match &self.servers {
            Servers::One(node) => node.pool.history.name(),
            Servers::Cluster(_) => None,
        }
    }
}

impl BlockedNotes for RedisStore {
    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        let written = match &self.servers {
            Servers::One(node) => node.write_blocked(key, blocked, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.set_blocked(key, blocked)).await,
        };
        self.told(written, key).await
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        let read = match &self.servers {
            Servers::One(node) => node.read_blocked(key, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.blocked(key)).await,
        };
        self.told(read, key).await
    }
}

impl JobRecords for RedisStore {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let read = match &self.servers {
            Servers::One(node) => node.read_last_run(key, Way::default()).await,
            Servers::Cluster(cluster) => Box::pin(cluster.last_run(key)).await,
        };
        self.told(read, key).await
    }
}
