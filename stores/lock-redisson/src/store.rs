//! The store.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;

use crate::listen::{Channels, Verb};
use crate::names;
use lock_redis::RedisStore;
use lock_redis::layout::ServerTime;
use lock_store::contract::backend::{
    AcquireRequest, Attempt, BlockedNotes, Capabilities, Claim, Doctor, Freed, Inbox, Inspector, LockBackend, Release,
    Renewal,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Durability;
use lock_store::types::owner::{Holder, OwnerId};
use lock_store::types::system::clock::Timestamp;
use lock_store::types::system::sync::Mutex;
use lock_store::types::system::together::all;
use lock_store::types::url::StoreUrl;

/// How many unanswered unlocks and spent latches are remembered: more than are ever in flight.
const MOST: usize = 4096;

/// Locks in the layout of Redisson's `RLock`, on one server, on the master that sentinels name, or on the masters of a cluster.
///
/// A lock is a hash at exactly the key the user wrote, with a field for its holder. Each claim has a field of its own, so it
/// never enters twice. Waiters of both libraries hear of a release on one channel, and race in no order.
/// Fencing tokens are drawn from the clock of [`RedisStore`]; holders in Java draw none. Readers, permits and leases are
/// refused.
///
/// # Permissions
///
/// A user needs those of [`RedisStore`], `HEXISTS HINCRBY HDEL HLEN HKEYS`, the keys and channels `redisson_lock__channel:*`, and the keys
/// `redisson_unlock_latch:*`.
///
/// ```
/// use lock_redisson::RedissonStore;
///
/// let store = RedissonStore::new("redis://127.0.0.1:6379")?;
/// assert_eq!(format!("{store:?}"), "RedissonStore(RedisStore(127.0.0.1:6379))");
/// # Ok::<(), lock_core::LockError>(())
/// ```
pub struct RedissonStore {
    pub(crate) redis: Arc<RedisStore>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) times: Times,
    pub(crate) unlocks: Unlocks,
    /// Whether it has been logged that releases are not published.
    pub(crate) warned: AtomicBool,
}

impl RedissonStore {
    /// Names the servers by a URL, as [`RedisStore::new`] does. Opens nothing yet.
    ///
    /// In a cluster, Redisson may publish with `SPUBLISH`, if its `shardedSubscriptionMode` says so. Then the URL needs
    /// `?redisson_publish=sharded`: the two kinds of messages do not meet.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) if the URL cannot be read. The message never repeats it.
    pub fn new(url: &str) -> Result<Self> {
        let mut url = StoreUrl::read(url);
        if url.take("layout")?.is_some_and(|layout| layout != "redisson") {
            return Err(LockError::misconfigured("this store has only layout=redisson"));
        }
        let (verb, is_cluster) = (url.take("redisson_publish")?, url.scheme().ends_with("+cluster"));
        let store = Self::over(RedisStore::read(url)?);
        match verb.as_deref() {
            None | Some("publish") => Ok(store),
            Some("sharded") if is_cluster => Ok(store.with_sharded_channels()),
            Some(_) => Err(LockError::misconfigured(
                "redisson_publish in the URL is publish, or in a cluster sharded; Redisson publishes so nowhere else",
            )),
        }
    }

    /// Keeps locks in this layout on the servers of a store that was built with certificates or credentials.
    ///
    /// ```
    /// use lock_core::RedisStore;
    /// use lock_redisson::RedissonStore;
    ///
    /// let servers = RedisStore::builder("redis+cluster://cache-1").client_name("billing").build()?;
    /// let store = RedissonStore::over(servers).with_sharded_channels();
    /// # drop(store);
    /// # Ok::<(), lock_core::LockError>(())
    /// ```
    #[must_use]
    pub fn over(servers: RedisStore) -> Self {
        let (times, unlocks, warned) = (Times::default(), Unlocks::default(), AtomicBool::new(false));
        Self { redis: Arc::new(servers), channels: Arc::new(Channels::new(Verb::Plain)), times, unlocks, warned }
    }

    /// Publishes with `SPUBLISH` and subscribes with `SSUBSCRIBE`, as Redisson does in a cluster with sharded subscriptions.
    #[must_use]
    pub fn with_sharded_channels(mut self) -> Self {
        self.channels = Arc::new(Channels::new(Verb::Sharded));
        self
    }
}

/// The time of each server, by its lane.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<HashMap<u16, ServerTime>>);

impl Times {
    pub(crate) fn note(&self, lane: u16, micros: u64, received: Timestamp) {
        let mut times = self.0.lock();
        times.entry(lane).or_insert_with(|| ServerTime::new(micros, received)).observe(micros, received);
    }

    /// Returns the deadline of a command as its server reads it. 0 before the first answer, which brings the time.
    pub(crate) fn deadline(&self, lane: u16, now: Timestamp, within: Duration) -> u64 {
        self.0.lock().get(&lane).map_or(0, |time| time.deadline(now, within))
    }
}

/// The numbers by which the server knows an unlock again that is repeated.
#[derive(Debug, Default)]
pub(crate) struct Unlocks {
    unanswered: Mutex<HashMap<OwnerId, OwnerId>>,
    /// The latches that are to be removed.
    pub(crate) spent: Mutex<Vec<(LockKey, OwnerId)>>,
    pub(crate) added: Notify,
}

impl Unlocks {
    /// Returns the number of a claim's unlock: the same until it is answered.
    pub(crate) fn number(&self, owner: OwnerId) -> OwnerId {
        let mut unanswered = self.unanswered.lock();
        if unanswered.len() >= MOST {
            unanswered.clear();
        }
        *unanswered.entry(owner).or_insert_with(OwnerId::random)
    }

    pub(crate) fn answered(&self, owner: OwnerId, latch: Option<(LockKey, OwnerId)>) {
        self.unanswered.lock().remove(&owner);
        let mut spent = self.spent.lock();
        // A latch that is not removed ends by itself.
        if spent.len() < MOST
            && let Some(latch) = latch
        {
            spent.push(latch);
            self.added.notify_one();
        }
    }
}

impl fmt::Debug for RedissonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedissonStore({:?})", self.redis)
    }
}

impl LockBackend for RedissonStore {
    fn kind(&self) -> &'static str {
        "redisson"
    }

    /// Without a queue: neither this library nor Redisson knows in which order the waiters of both have come.
    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled();
        known.durability = true;
        known.wakes = true;
        known
    }

    fn lane(&self, key: &LockKey) -> u16 {
        self.redis.lane(key)
    }

    fn node(&self, lane: u16) -> &str {
        self.redis.node(lane)
    }

    fn durability(&self) -> Durability {
        self.redis.durability()
    }

    fn failovers(&self, lane: u16) -> u64 {
        self.redis.failovers(lane)
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        tokio::select! {
            error = self.redis.drive(inbox.clone()) => error,
            () = self.channels.listen(&self.redis, &inbox) => LockError::unavailable("listening for releases ended"),
            () = self.forget_latches() => LockError::unavailable("forgetting unlocks ended"),
        }
    }

    async fn ping(&self) -> Result<()> {
        self.redis.ping().await
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        self.channels.knows(&names::channel(key))
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let claim = &request.claim;
        if request.ticket.is_none() {
            return self.acquire(request).await;
        }
        let channel = names::channel(&claim.key);
        // Before the lock is looked at, so that no release goes unheard.
        let is_told = self.channels.enter(&channel, self.redis.lane(&claim.key), claim.owner);
        match self.acquire(request).await {
            // Among the waiters, in no order.
            Ok(Attempt::Held { holder }) if is_told => Ok(Attempt::Queued { holder }),
            attempt => {
                self.channels.leave(&channel, claim.owner);
                attempt
            }
        }
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        self.free(release).await.map_err(LockError::before_the_acquire)?;
        if request.ticket.is_none() {
            return self.acquire(request).await;
        }
        // Waiters of Redisson hear of the release only now. A claim that asked at once would always be first.
        Ok(Attempt::Held { holder: Holder::unseen() })
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        // Polled together, they leave together.
        all(one_lane.iter().map(|claim| self.extend(claim))).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.free(release).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.free(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        Ok(self.seen(key).await?.map(|seen| seen.holder()))
    }

    fn blocking(&self) -> Option<&impl BlockedNotes> {
        self.redis.blocking()
    }

    fn inspector(&self) -> Option<&impl Inspector> {
        Some(self)
    }

    fn doctor(&self) -> Option<&impl Doctor> {
        self.redis.doctor()
    }
}
