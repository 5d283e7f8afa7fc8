//! Reads the locks of a whole fleet from Redis, for people and for inspectors.
//!
//! Nothing in here lies on the way of an acquire. A scan is paced and bounded, reads at most a
//! kilobyte of a value, and changes nothing.

mod scan;
mod waiters;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Pipeline, Value};

use crate::backend::{Claim, Freed, LockBackend, Release};
use crate::clock::Clock;
use crate::error::{LockError, Result};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::owner::{Holder, OwnerId};
use crate::redis::{RedisStore, error, keys, reply, value};

pub use scan::{Scan, ScanOptions};
pub use waiters::Waiter;

/// How long one command may take, connecting included.
const PATIENCE: Duration = Duration::from_secs(6);

/// How much of a value is read. Ours are shorter; a foreign string may be of any size.
const VALUE_READ: isize = 1024;

/// Reads the locks of every process that uses one Redis server.
///
/// ```no_run
/// use lock_core::inspect::{FleetReader, ScanOptions};
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let fleet = FleetReader::new("redis://127.0.0.1")?;
/// let mut scan = fleet.scan(ScanOptions::new().with_prefix("lock:"));
/// while let Some(batch) = scan.next().await? {
///     for entry in batch {
///         println!("{} is held by {}", entry.key, entry.holder);
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Of a cluster it sees the one node that the URL names.
pub struct FleetReader {
    store: RedisStore,
}

/// One lock, as Redis tells it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockEntry {
    /// The rendered key.
    pub key: LockKey,
    /// Who has it.
    pub state: EntryState,
    /// The holder with its lease. Of a tenure that is handed on inside a process this is who opened
    /// it; that process's live view names the holder of the moment.
    pub holder: Holder,
    /// When the lock was granted, by the server's clock. `None` for a foreign holder.
    pub granted_at: Option<SystemTime>,
    /// How long ago that was, by the server's clock.
    pub held_for: Option<Duration>,
    /// How many processes stand in the server's queue. Those that poll leave no trace.
    pub waiters: u64,
}

/// Who has a lock that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryState {
    /// One of our holders.
    Held,
    /// Nobody any more: it was released, and stays taken for the rest of its `min_hold`.
    Kept,
    /// A client of the classic protocol, or something else that wrote a string there.
    Foreign,
}

impl EntryState {
    /// Returns the state in one lower-case word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Kept => "kept",
            Self::Foreign => "foreign",
        }
    }
}

impl FleetReader {
    /// Names a server by its URL, as in [`RedisStore::new`]. Opens nothing yet.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the URL cannot be
    /// read. The text never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { store: RedisStore::new(url)? })
    }

    /// Returns the server's name: host, port and database, never a credential.
    #[must_use]
    pub fn node(&self) -> &str {
        self.store.pool.node()
    }

    /// Checks that the server answers and accepts our credentials.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn ping(&self) -> Result<()> {
        self.within("answer", self.store.ping()).await
    }

    /// Starts to walk through every lock. Nothing is sent before [`Scan::next`].
    #[must_use]
    pub fn scan(&self, options: ScanOptions) -> Scan<'_> {
        Scan::new(self, options)
    }

    /// Reads one lock. `None` if it is free.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured), also for a key that
    /// holds another type than a string.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        keys::Keys::of(key)?;
        let found = self.read(std::slice::from_ref(key)).await?;
        match found.into_iter().next() {
            Some(Found::Entry(entry)) => Ok(Some(entry)),
            Some(Found::Mistyped) => Err(error::mistyped(key.as_str())),
            Some(Found::Nothing) | None => Ok(None),
        }
    }

    /// Lists who stands in the server's queue for a key, first come first.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        keys::Keys::of(key)?;
        self.within("list the waiters", waiters::read(&self.store, key)).await
    }

    /// Takes a lock away from the holder with this identity, and from no other.
    ///
    /// It is the ordinary release: the comparison and the deletion are one step on the server, and
    /// the next grant has a greater fencing token. The holder learns of it with its next renewal, as
    /// [`LossReason::Stolen`](crate::LossReason::Stolen), and until then believes that it holds the
    /// lock: only a resource that checks tokens is safe in between.
    ///
    /// Whatever the outcome, a `tracing` event with the target `lock_core::audit` says who asked
    /// (`actor`), for which key, and why.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry). After [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable)
    /// it may or may not have been done; repeating it is safe.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; it may be done all the same.
    pub async fn release(&self, key: &LockKey, owner: OwnerId, actor: &str, reason: &str) -> Result<Freed> {
        // What a release needs of a claim is its key and its owner.
        let claim = Release::new(Claim { key: key.clone(), owner, ttl: Duration::ZERO });
        let freed = self.within("release", self.store.release(&claim)).await;
        let outcome = match &freed {
            Ok(Freed::Released) => "released",
            Ok(Freed::NotHeld) => "not_held",
            Err(_) => "failed",
        };
        let (key, node) = (key.as_str(), self.node());
        tracing::warn!(
            target: "lock_core::audit",
            action = "release", node, key, ?owner, actor, reason, outcome,
            "an operator asked to release a lock"
        );
        freed
    }

    /// Reads locks, with their leases and the length of their queues, in one pipeline.
    async fn read(&self, keys: &[LockKey]) -> Result<Vec<Found>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = redis::pipe();
        for key in keys {
            commands.cmd("GETRANGE").arg(key.as_str()).arg(0).arg(VALUE_READ);
            commands.cmd("PTTL").arg(key.as_str());
            waiters::count(&mut commands, key)?;
        }
        let (answers, now) = self.within("read locks", self.ask(&commands)).await?;
        let found = keys.iter().zip(answers.chunks_exact(3));
        found.map(|(key, answers)| self.found(key, answers, now)).collect()
    }

    /// Sends commands, and returns their answers with the time on the server, in µs.
    async fn ask(&self, commands: &Pipeline) -> Result<(Vec<Value>, u64)> {
        let link = self.store.pool.link().await?;
        let answers = link.send_all(commands).await.map_err(|error| self.failed("read", &error))?;
        if answers.len() != commands.len() {
            return Err(self.store.unreadable("read"));
        }
        Ok((answers, link.time.estimate(Clock::system().now())))
    }

    fn found(&self, key: &LockKey, answers: &[Value], now: u64) -> Result<Found> {
        let [text, left, waiters] = answers else { return Err(self.store.unreadable("read")) };
        let text = match text {
            Value::BulkString(text) => text,
            Value::ServerError(error) if error.code() == "WRONGTYPE" => return Ok(Found::Mistyped),
            Value::ServerError(error) => return Err(self.failed("read", &error.clone().into())),
            _ => return Err(self.store.unreadable("read")),
        };
        let left = match left {
            Value::Int(-2) => return Ok(Found::Nothing),
            Value::Int(left) => reply::time_left(*left),
            Value::ServerError(error) => return Err(self.failed("read", &error.clone().into())),
            _ => return Err(self.store.unreadable("read")),
        };
        // Without a queue, or with something else in its place, nobody waits in it.
        let waiters = if let Value::Int(waiters) = waiters { u64::try_from(*waiters).unwrap_or(0) } else { 0 };
        Ok(Found::Entry(LockEntry::new(key.clone(), value::holder(text, left), waiters, now)))
    }

    async fn within<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let clock = Clock::system();
        tokio::select! {
            biased;
            done = work => done,
            () = clock.sleep_until(clock.now().after(PATIENCE)) => Err(LockError::unavailable(format!(
                "{} did not {what} within {PATIENCE:?}; check the network and whether it is stalled",
                self.node(),
            ))),
        }
    }

    fn failed(&self, op: &str, error: &redis::RedisError) -> LockError {
        self.store.failed(op, error)
    }
}

impl fmt::Debug for FleetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetReader({})", self.node())
    }
}

/// What lies at a key.
enum Found {
    Entry(LockEntry),
    Nothing,
    /// Another type than a string.
    Mistyped,
}

impl LockEntry {
    fn new(key: LockKey, holder: Holder, waiters: u64, now: u64) -> Self {
        let state = match (&holder.owner, &holder.info) {
            (Some(_), _) => EntryState::Held,
            (None, Some(_)) => EntryState::Kept,
            (None, None) => EntryState::Foreign,
        };
        // A token is the server's time in µs at the grant, or a little more after a step backwards.
        let granted = holder.token.map(FencingToken::get);
        Self {
            key,
            state,
            holder,
            granted_at: granted.and_then(|micros| UNIX_EPOCH.checked_add(Duration::from_micros(micros))),
            held_for: granted.map(|micros| Duration::from_micros(now.saturating_sub(micros))),
            waiters,
        }
    }

    /// Returns whether the key would stay taken for ever, because it has no expiry.
    #[must_use]
    pub fn is_without_ttl(&self) -> bool {
        self.holder.ttl_left.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{EntryState, LockEntry};
    use crate::fencing::FencingToken;
    use crate::key::LockKey;
    use crate::owner::{Holder, HolderInfo, OwnerId};

    #[test]
    fn a_token_tells_since_when() {
        let holder = Holder::new(HolderInfo::new("h", 1, "s"), OwnerId::random(), FencingToken::new(7_000_000), None);
        let entry = LockEntry::new(LockKey::new("k").unwrap(), holder, 0, 9_500_000);
        assert_eq!(entry.granted_at, Some(UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(entry.held_for, Some(Duration::from_millis(2500)));
        assert!(entry.is_without_ttl() && entry.state == EntryState::Held);
    }

    #[test]
    fn a_token_ahead_of_the_clock_is_new() {
        let holder = Holder::new(
            HolderInfo::new("h", 1, "s"),
            OwnerId::random(),
            FencingToken::new(u64::MAX),
            Some(Duration::ZERO),
        );
        let entry = LockEntry::new(LockKey::new("k").unwrap(), holder, 0, 5);
        assert_eq!(entry.held_for, Some(Duration::ZERO));
    }

    #[test]
    fn foreign_text_has_no_age() {
        let entry = LockEntry::new(LockKey::new("k").unwrap(), Holder::foreign(None), 0, 5);
        assert_eq!((entry.state, entry.held_for, entry.granted_at), (EntryState::Foreign, None, None));
    }
}
