//! Locks on one Redis server.

mod builder;
mod call;
mod coalesce;
mod connect;
mod credentials;
mod error;
pub mod inspect;
mod keys;
mod link;
mod pool;
mod push;
mod reply;
mod scripts;
mod together;
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
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::owner::Holder;
use crate::redis::call::Call;
use crate::redis::coalesce::Departure;
use crate::redis::connect::Target;
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::redis::pool::Pool;
use crate::redis::push::Ears;
use crate::redis::reply::Acquired;
use crate::redis::scripts::SCRIPTS;

/// Tokens stay below this, so that a block on top of it is still exact in Lua's numbers (2^53).
const MAX_TOKEN: u64 = 9_000_000_000_000_000;

/// How often an acquire that came too late for its deadline is sent again, with a corrected one.
const STALE_RETRIES: usize = 3;

/// How many locks one script renews: about a quarter of a millisecond, in which the server serves nobody
/// else.
const RENEW_BATCH: usize = 50;

/// The pause before reconnecting, at most: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A store on one Redis server, version 6.2 or later.
///
/// A lock is a plain string at exactly the key the user wrote, taken if absent and with an expiry.
/// Clients of the classic `SET NX PX` protocol in any language exclude it and are excluded by it.
///
/// Each tokio runtime that uses the store gets its own connection, opened at the first call. A
/// manager adds one that listens.
///
/// A server of version 7 or later that permits `CLIENT TRACKING` and `MGET` tells of a lock that is
/// deleted, overwritten, evicted or expired, and of `FLUSHALL`, within milliseconds. That covers every
/// lock that has been held for a fifth of a second, with or without renewal. Otherwise, and while the
/// listening connection is down, the next renewal finds out.
///
/// # Permissions
///
/// For keys that begin with `lock:`, a user needs no more than this. The lines say what for: to hold
/// locks, to wait for them without polling, to hear of losses at once and be named in `CLIENT LIST`,
/// and to read them with [`FleetReader`](crate::inspect::FleetReader), where the last three words are for
/// clusters. Without the second and third, waiters poll and renewals find losses.
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
    ears: Ears,
    /// Whether the log has been told of the server's eviction policy.
    warned_of_eviction: AtomicBool,
}

impl RedisStore {
    /// Names a server by its URL. Opens nothing yet.
    ///
    /// Understood are `redis://[user][:password@]host[:port][/db]`, the same with `rediss://` for
    /// TLS (cargo feature `tls`), and `redis+unix:///path[?db=n&user=…&pass=…]` (or `unix://`).
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`] if the URL cannot be
    /// read or its scheme is not compiled in. The text never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    fn at(target: Target) -> Self {
        Self { pool: Pool::new(target), ears: Ears::default(), warned_of_eviction: AtomicBool::new(false) }
    }

    /// Returns how many runtimes have a connection now, open or being opened. For tests.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.connections()
    }

    /// Sends a claim, together with the release of another if there is one.
    async fn acquire(&self, request: &AcquireRequest, before: Option<&Release>) -> Result<Attempt> {
        let keys = Keys::of(&request.claim.key)?;
        Self::check_floor(request.floor)?;
        for _ in 0..=STALE_RETRIES {
            let link = self.pool.link().await?;
            let deadline = link.time.deadline(Clock::system().now(), request.execute_within);
            let call = Call::acquire(&keys, request, before, deadline);
            let answer = link.call(call, Departure::Now).await.map_err(|error| self.failed("acquire", &error))?;
            return match Acquired::read(&answer).ok_or_else(|| self.unreadable("acquire"))? {
                Acquired::Granted(token) => Ok(Attempt::Granted { token, block: request.block.max(1) }),
                Acquired::Mine(token) => Ok(Attempt::Granted { token, block: 1 }),
                Acquired::Held(holder) => Ok(Attempt::Held { holder }),
                Acquired::Queued(holder) => Ok(Attempt::Queued { holder }),
                Acquired::Mistyped(name) => Err(error::mistyped(&name)),
                Acquired::Failed(text) => Err(error::answered(self.pool.node(), "acquire", &text)),
                // Together with its answer came what time it is.
                Acquired::Stale => continue,
            };
        }
        Err(self.too_late(request.execute_within))
    }

    /// Refuses a floor above which no token is left.
    fn check_floor(floor: FencingToken) -> Result<()> {
        if floor.get() <= MAX_TOKEN {
            return Ok(());
        }
        Err(LockError::misconfigured(format!(
            "the newest token known, {floor}, leaves no room for a greater one; find out which resource stored it, the \
             store gives tokens below {MAX_TOKEN}",
        )))
    }

    fn too_late(&self, execute_within: Duration) -> LockError {
        LockError::not_executed(format!(
            "{} was reached only after the acquire's deadline of {execute_within:?}, {} times; it is stalled, or the ttl \
             is too short for this network",
            self.pool.node(),
            STALE_RETRIES + 1,
        ))
    }

    async fn free(&self, op: &str, release: &Release) -> Result<Freed> {
        let keys = Keys::of(&release.claim.key)?;
        let link = self.pool.link().await?;
        let departure = if release.in_background { Departure::WithTheNext } else { Departure::Now };
        let answer =
            link.call(Call::release(&keys, release), departure).await.map_err(|error| self.failed(op, &error))?;
        let freed = reply::released(&answer).ok_or_else(|| self.unreadable(op))?;
        freed.map_err(|text| error::answered(self.pool.node(), op, &text))
    }

    /// Renews at most [`RENEW_BATCH`] claims.
    async fn renew_batch(&self, claims: &[Claim]) -> Result<Vec<Result<Renewal>>> {
        if let Some(answers) = self.renew_tracked(claims).await {
            return answers;
        }
        let link = self.pool.link().await?;
        self.renew_over(&link, claims, false).await
    }

    async fn renew_over(&self, link: &Link, claims: &[Claim], track: bool) -> Result<Vec<Result<Renewal>>> {
        let keys: Vec<&str> = claims.iter().map(|claim| claim.key.as_str()).collect();
        let answer = link
            .eval(&SCRIPTS.renew, &keys, |command| {
                command.arg(if track { "track" } else { "" });
                for claim in claims {
                    command.arg(&value::head(claim.owner));
                }
                // Mostly all have the same, and one word for all is enough.
                let alike = claims.windows(2).all(|pair| pair[0].ttl == pair[1].ttl);
                for claim in &claims[..if alike { 1 } else { claims.len() }] {
                    command.arg(value::millis(claim.ttl));
                }
            })
            .await
            .map_err(|error| self.failed("renew", &error))?;
        let Value::Array(answers) = answer else { return Err(self.unreadable("renew")) };
        let mut renewals = vec![Ok(Renewal::Renewed); claims.len()];
        for pair in answers.chunks(2) {
            let [Value::Int(number), answer] = pair else { return Err(self.unreadable("renew")) };
            let index = usize::try_from(*number).unwrap_or(0).wrapping_sub(1);
            let Some(renewal) = renewals.get_mut(index) else { return Err(self.unreadable("renew")) };
            let error = match answer {
                Value::Int(0) => {
                    *renewal = Ok(Renewal::Lost);
                    continue;
                }
                Value::BulkString(text) => error::answered(self.pool.node(), "renew", &String::from_utf8_lossy(text)),
                _ => self.unreadable("renew"),
            };
            *renewal = Err(error.with_key(&claims[index].key));
        }
        Ok(renewals)
    }

    async fn read_holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let link = self.pool.link().await?;
        let answer = link
            .eval(&SCRIPTS.holder, &[Keys::of(key)?.lock], |_| {})
            .await
            .map_err(|error| self.failed("look at the holder", &error))?;
        reply::holder(&answer).ok_or_else(|| self.unreadable("look at the holder"))
    }

    /// Reports whether the server may throw locks away when its memory is full.
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
            match self.pool.link().await {
                Ok(link) => {
                    inbox.notice(&Notice::Connection { node, up: true });
                    tracing::debug!(node, generation = link.generation, "connected");
                    if was_up {
                        inbox.reconnected();
                    }
                    (was_up, told_down, pause) = (true, false, BACKOFF.0);
                    let mut gone = link.gone();
                    self.check_eviction(&link, inbox).await;
                    // Held no longer: a connection that was given up must be able to close.
                    drop(link);
                    let _ = gone.changed().await;
                    tracing::debug!(node, "disconnected");
                }
                Err(error) if error.kind() == LockErrorKind::Misconfigured => return error,
                Err(error) => tracing::debug!(node, %error, "cannot connect"),
            }
            if !told_down {
                inbox.notice(&Notice::Connection { node, up: false });
                told_down = true;
            }
            // Full jitter, so that a fleet does not come back in step.
            clock.sleep_until(clock.now().after(jitter(Duration::from_millis(1), pause))).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    fn failed(&self, op: &str, error: &RedisError) -> LockError {
        error::executing(self.pool.node(), op, error)
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
        if self.ears.can_hear() { known.with_push_loss() } else { known }
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
        self.pool.link().await.map(drop)
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
        let mut answers = Vec::with_capacity(one_lane.len());
        for batch in one_lane.chunks(RENEW_BATCH) {
            match self.renew_batch(batch).await {
                Ok(batch) => answers.extend(batch),
                Err(error) => answers.extend(batch.iter().map(|claim| Err(error.clone().with_key(&claim.key)))),
            }
        }
        answers
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

/// Asks for the eviction policy, in the way that managed servers allow if the direct one is barred.
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
