//! Reads the locks of a whole fleet from Redis, for people and for inspectors.
//!
//! Nothing here is part of an acquire. A scan is paced and bounded, reads at most a kilobyte of a
//! value, and changes nothing.

mod entry;
mod holders;
mod jobs;
mod release;
mod scan;
mod servers;
mod topology;
mod waiters;

use std::fmt;
use std::sync::Arc;

use redis::Value;

use crate::contract::backend::JobRecord;
use crate::stores::redis::calls::run::Operation as _;
use crate::stores::redis::calls::wrong_type::FindOtherType;
use crate::stores::redis::error::wrong_type::WrongType;
use crate::stores::redis::inspect::servers::{Answer, Servers, within};
use crate::stores::redis::masters::Masters;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::{RedisStore, error, keys, steps, value};
use crate::types::error::Result;
use crate::types::key::LockKey;
use crate::types::prefix::take_key_prefix;

pub use entry::{EntryState, LockEntry};
pub use holders::FleetHolder;
pub use scan::{Scan, ScanOptions};
pub use topology::{Part, Server, Topology};
pub use waiters::Waiter;

/// How much of a value is read. Ours are shorter; a foreign string may be of any size.
const VALUE_READ: isize = 1024;

/// Reads the locks of every process that uses one Redis server, the master that sentinels name, or one Redis Cluster.
///
/// The URL of any node stands for its cluster. A scan reads the masters one after the other, and a
/// command for one key goes to the master that serves it. Every node is reached with the credentials
/// and settings of the URL, at the address that the cluster announces. Replicas are never read. If the
/// node of the URL cannot be reached, the masters of the last scan are asked instead.
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
pub struct FleetReader {
    servers: Servers,
    /// The prefix of every key that is read.
    prefix: String,
}

impl FleetReader {
    /// Names a server by its URL, as in [`RedisStore::new`]. Opens nothing yet.
    ///
    /// With `?key_prefix=prod:` scans see the keys of that namespace only. Keys are always given and returned
    /// as they are in Redis.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the URL cannot be
    /// read. The message never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        let (url, prefix) = take_key_prefix(url)?;
        Ok(Self { servers: Servers::new(&url)?, prefix: prefix.unwrap_or_default() })
    }

    /// Confines it to a namespace.
    pub(crate) fn within(mut self, prefix: Option<&str>) -> Self {
        self.prefix = prefix.unwrap_or_default().to_owned();
        self
    }

    /// Returns the URL's `key_prefix`, empty if it has none.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the name of the URL's server: host, port and database, never a credential.
    #[must_use]
    pub fn node(&self) -> &str {
        self.servers.named().pool.node()
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
        let named = self.servers.named();
        within(named, "answer", async { named.pool.connection().await.map(drop) }).await
    }

    /// Returns the store on the server that keeps a key: of a cluster, the master of its slot. It
    /// serves locks whose keys lie there.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn store_of(&self, key: &LockKey) -> Result<Arc<RedisStore>> {
        Ok(Arc::new(RedisStore { masters: Masters::One(self.servers.keeper_of(key).await?) }))
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
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured), also for a key whose
    /// type is not a string.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        keys::Keys::of(key)?;
        let store = self.servers.reachable().await?;
        let found = self.read(&store, std::slice::from_ref(key)).await;
        let found = match self.told(found, key).await?.into_iter().next() {
            Some(Found::Entry(entry)) => Ok(Some(*entry)),
            Some(Found::Mistyped) => Err(error::mistyped(key.as_str())),
            Some(Found::Nothing) | None => Ok(None),
        };
        self.told(found, key).await
    }

    /// Lists the waiters in the server's queue for a key, in order of arrival.
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
        self.told(waiters::read(&self.servers, key).await, key).await
    }

    /// Lists everybody who has a lock, in the order in which their leases end: one holder, or all that share it.
    ///
    /// Readers of one process mostly share one claim, which is one holder here: that process's live view names each.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holders(&self, key: &LockKey) -> Result<Vec<FleetHolder>> {
        let Some(entry) = self.entry(key).await? else { return Ok(Vec::new()) };
        match entry.state {
            EntryState::Shared => self.told(holders::read(&self.servers, &entry).await, key).await,
            _ => Ok(vec![FleetHolder::alone(entry)]),
        }
    }

    /// Reads what is remembered of a job that has a period. `None` if it never ran, or was forgotten.
    ///
    /// # Errors
    ///
    /// As [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let from = self.servers.reachable().await?;
        let found = jobs::read_one(&self.servers, &from, key).await;
        self.told(found, key).await
    }

    /// Names the key that is of another type, if a failure is about one.
    async fn told<T>(&self, answer: Result<T>, key: &LockKey) -> Result<T> {
        let error = match answer {
            Err(error) if WrongType::is_of(&error) => error,
            told => return told,
        };
        let Ok(keeper) = self.servers.keeper_of(key).await else { return Err(error) };
        let found = within(&keeper, "say what lies there", FindOtherType(key).at(&keeper, Way::default())).await;
        Err(found.ok().flatten().unwrap_or(error))
    }

    /// Reads locks of a server, with their leases and the length of their queues, in one pipeline.
    async fn read(&self, store: &Arc<Node>, keys: &[LockKey]) -> Result<Vec<Found>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = Vec::with_capacity(3 * keys.len());
        for key in keys {
            let mut value = redis::cmd("GETRANGE");
            value.arg(key.as_str()).arg(0).arg(VALUE_READ);
            let mut left = redis::cmd("PTTL");
            left.arg(key.as_str());
            commands.extend([value, left, waiters::count(key)?]);
        }
        let answers = self.servers.ask(store, "read locks", &commands).await?;
        let found = keys.iter().zip(answers.chunks_exact(3)).map(|(key, answers)| Self::found(key, answers));
        let mut found = found.collect::<Result<Vec<Found>>>()?;
        let shared = found.iter_mut().filter_map(|found| match found {
            Found::Entry(entry) if entry.state == EntryState::Shared => Some(&mut **entry),
            _ => None,
        });
        holders::note_modes(&self.servers, store, &mut shared.collect::<Vec<_>>()).await?;
        Ok(found)
    }

    fn found(key: &LockKey, answers: &[Answer]) -> Result<Found> {
        let [text, left, waiters] = answers else { unreachable!("three commands have three answers") };
        let now = text.now;
        let text = match &text.value {
            Value::BulkString(text) => text,
            Value::ServerError(error) if error.code() == "WRONGTYPE" => return Ok(Found::Mistyped),
            _ => return Err(text.refusal("read")),
        };
        let left = match &left.value {
            Value::Int(-2) => return Ok(Found::Nothing),
            Value::Int(left) => steps::time_left(*left),
            _ => return Err(left.refusal("read")),
        };
        // A queue that is not there is counted as 0 by the server itself. What it refuses to count is unknown: its user may
        // not, or something else lies there.
        let waiters = if let Value::Int(waiters) = waiters.value { u64::try_from(waiters).ok() } else { None };
        let mut entry = LockEntry::new(key.clone(), value::holder(text, left), waiters, now);
        entry.units = value::units(text);
        if entry.units.is_some() {
            entry.state = EntryState::Shared;
        }
        match entry.state {
            EntryState::Held => entry.ttl = value::ttl(text),
            EntryState::Foreign => entry.foreign_value = Some(text.clone()),
            EntryState::Kept | EntryState::Shared => {}
        }
        Ok(Found::Entry(Box::new(entry)))
    }
}

impl fmt::Debug for FleetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetReader({})", self.node())
    }
}

/// What was found at a key.
enum Found {
    Entry(Box<LockEntry>),
    Nothing,
    /// A type other than a string.
    Mistyped,
}
