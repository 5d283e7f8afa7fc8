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
mod node;
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
use std::sync::Arc;

use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, Capabilities, Claim, Freed, Inbox, LockBackend, Release, Renewal,
};
use crate::error::{LockError, Result};
use crate::key::LockKey;
use crate::owner::Holder;
use crate::redis::connect::Target;
use crate::redis::node::Node;

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
    node: Arc<Node>,
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
        Self { node: Arc::new(Node::at(target)) }
    }

    /// Returns how many runtimes have a connection now, open or being opened. For tests.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn connections(&self) -> usize {
        self.node.pool.connections()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.node.name())
    }
}

impl LockBackend for RedisStore {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        let known = Capabilities::polled().with_queue();
        if self.node.listeners.can_hear() { known.with_push_loss() } else { known }
    }

    fn node(&self, _lane: u16) -> &str {
        self.node.name()
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.node.drive(&inbox).await
    }

    async fn ping(&self) -> Result<()> {
        // Opening a connection logs in and reads the server's time.
        self.node.pool.connection().await.map(drop)
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.node.acquire(request, None).await.map_err(|error| error.with_key(&request.claim.key))
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        self.node.acquire_all(requests).await
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        self.node.acquire(request, Some(release)).await.map_err(|error| error.with_key(&request.claim.key))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        self.node.renew(one_lane).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.node.free("release", release).await.map_err(|error| error.with_key(&release.claim.key))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.node.free("withdraw", &Release::new(claim.clone())).await.map_err(|error| error.with_key(&claim.key))
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.node.read_holder(key).await.map_err(|error| error.with_key(key))
    }
}
