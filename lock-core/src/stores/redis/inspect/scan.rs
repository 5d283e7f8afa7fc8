//! Walks through the keys of a server, slowly.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::contract::backend::JobRecord;
use crate::stores::redis::inspect::servers::{Fleet, within};
use crate::stores::redis::place::slots::Topology;
use crate::stores::redis::wire::url::Address;
use crate::types::error::Result;
use crate::types::key::LockKey;
use crate::types::system::clock::Clock;

use crate::stores::redis::inspect::{EntryState, FleetReader, Found, LockEntry, jobs};
use crate::stores::redis::keys;
use crate::stores::redis::server::node::Node;

/// Sets what a [`Scan`] looks at, and how much it may cost.
///
/// ```
/// use lock_core::inspect::ScanOptions;
///
/// // Strings of other clients below `jobs:` count as locks too.
/// let options = ScanOptions::new().with_prefix("jobs:").with_foreign_prefix("jobs:").with_max_keys(10_000);
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ScanOptions {
    prefix: String,
    foreign: Vec<String>,
    pause: Duration,
    max_keys: u64,
}

impl ScanOptions {
    /// How many keys the server looks at in one go. In a measurement, ten times as many kept other
    /// clients waiting for 5 ms instead of 0.5 ms.
    const BATCH: u64 = 100;

    /// Looks at every key, at most a million, with a pause of 1 ms after each hundred.
    pub fn new() -> Self {
        Self { prefix: String::new(), foreign: Vec::new(), pause: Duration::from_millis(1), max_keys: 1_000_000 }
    }

    /// Looks only at keys that begin with this.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Counts strings below this prefix that are not in our format as locks of other clients. May
    /// be called more than once; other such strings are left out.
    pub fn with_foreign_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.foreign.push(prefix.into());
        self
    }

    /// Sets the pause after each hundred keys.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets about how many keys are looked at before the scan ends [truncated](Scan::is_truncated).
    /// In a cluster this counts all masters together.
    pub fn with_max_keys(mut self, max_keys: u64) -> Self {
        self.max_keys = max_keys;
        self
    }
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The longest value that a classic client is assumed to write into a lock.
const NONCE: usize = 64;

/// A walk through the locks of a server, or of every master of a cluster, batch by batch.
///
/// A lock that is taken or freed meanwhile may or may not be seen; a lock that is held all the time
/// is seen once.
///
/// A master of a cluster that cannot be reached, or is no longer a master, causes an error that names
/// it; a scan that begins after the failover reads its successor. When all masters have been read, those
/// that took over slots meanwhile, or are doing so, are read again: a lock whose slot moves during the
/// scan is not missed.
///
/// ```
/// use lock_core::inspect::{FleetReader, ScanOptions};
///
/// # async fn demo(fleet: FleetReader) -> Result<(), lock_core::LockError> {
/// let mut scan = fleet.scan(ScanOptions::new());
/// let mut held = 0;
/// while let Some(batch) = scan.next().await? {
///     held += batch.len();
/// }
/// println!("{held} locks on {:?}", scan.servers());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scan<'a> {
    reader: &'a FleetReader,
    options: ScanOptions,
    /// The server that is being read.
    server: Option<Arc<Node>>,
    /// Where to continue in its keys.
    cursor: u64,
    /// The cluster as it was when its masters were listed, if the server belongs to one.
    cluster: Option<Topology>,
    /// The masters that are still to be read.
    ahead: VecDeque<Address>,
    /// Whether masters that are taking over a slot have been listed to be read again. Once is enough:
    /// locks that they were given later were seen on their previous master.
    settled: bool,
    ended: bool,
    visited: u64,
    truncated: bool,
    /// The locks returned so far: SCAN may name a key twice.
    given: HashSet<LockKey>,
    /// The jobs found so far.
    jobs: BTreeMap<LockKey, JobRecord>,
    /// The number of left-out strings that look like locks of other clients, and one of them.
    left_out: (u64, Option<LockKey>),
    /// The names of the servers read so far.
    read: BTreeSet<String>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(reader: &'a FleetReader, mut options: ScanOptions) -> Self {
        // Both prefixes are relative to the namespace.
        options.prefix.insert_str(0, reader.key_prefix());
        options.foreign.iter_mut().for_each(|prefix| prefix.insert_str(0, reader.key_prefix()));
        Self {
            reader,
            options,
            server: None,
            cursor: 0,
            cluster: None,
            ahead: VecDeque::new(),
            settled: false,
            ended: false,
            visited: 0,
            truncated: false,
            given: HashSet::new(),
            jobs: BTreeMap::new(),
            left_out: (0, None),
            read: BTreeSet::new(),
        }
    }

    /// Reads the next locks. A batch may be empty although there are more. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured). The message names the
    /// server.
    ///
    /// # Cancel safety
    ///
    /// Safe: the same batch is read again.
    pub async fn next(&mut self) -> Result<Option<Vec<LockEntry>>> {
        let Some(server) = self.server().await? else { return Ok(None) };
        if self.visited >= self.options.max_keys {
            self.truncated = true;
            (self.server, self.ended) = (None, true);
            return Ok(None);
        }
        if self.visited > 0 {
            let clock = Clock::system();
            clock.sleep_until(clock.now().after(self.options.pause)).await;
        }
        let Names { next, locks, jobs } = within(&server, "scan", self.keys(&server)).await?;
        let is_new = |name: &LockKey| name.as_str().starts_with(&self.options.prefix) && !self.given.contains(name);
        let names: Vec<LockKey> = locks.into_iter().filter(is_new).collect();
        let found = self.reader.read(&server, &names).await?;
        let jobs: Vec<LockKey> =
            jobs.into_iter().filter(|name| name.as_str().starts_with(&self.options.prefix)).collect();
        self.jobs.extend(jobs::read(&self.reader.servers, &server, &jobs).await?);
        self.read.insert(server.pool.node().to_owned());
        self.cursor = next;
        if next == 0 {
            (self.server, self.ended) = (None, self.cluster.is_none());
        }
        self.visited += ScanOptions::BATCH;
        let mut entries = Vec::new();
        for found in found {
            let Found::Entry(entry) = found else { continue };
            if !self.is_wanted(&entry) {
                self.leave_out(*entry);
            } else if self.given.insert(entry.key.clone()) {
                entries.push(*entry);
            }
        }
        Ok(Some(entries))
    }

    /// Returns whether the scan ended early because it had looked at as many keys as allowed.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the names of the servers that were read so far: the masters of a cluster, or one.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        self.read.iter().map(String::as_str).collect()
    }

    /// Returns the jobs found so far that have a period, by the key of their lock. They are remembered also
    /// while nobody runs them.
    pub fn jobs(&self) -> impl Iterator<Item = (&LockKey, &JobRecord)> {
        self.jobs.iter()
    }

    /// Returns about how many strings were left out so far that look like locks of other clients, and one
    /// of them. Such strings are short and have an expiry, or have `lock` or `mutex` in their name. To see
    /// them, give their prefix to [`ScanOptions::with_foreign_prefix`].
    #[must_use]
    pub fn left_out(&self) -> (u64, Option<&LockKey>) {
        (self.left_out.0, self.left_out.1.as_ref())
    }

    fn leave_out(&mut self, entry: LockEntry) {
        let name = entry.key.as_str().to_ascii_lowercase();
        let named = name.contains("lock") || name.contains("mutex");
        let short = entry.foreign_value.is_some_and(|value| value.len() <= NONCE);
        if named || (short && entry.holder.ttl_left.is_some()) {
            self.left_out.0 += 1;
            // A key with such a word in its name is the better example.
            if self.left_out.1.is_none() || named {
                self.left_out.1 = Some(entry.key);
            }
        }
    }

    /// Finds the server to continue with; `None` at the end.
    async fn server(&mut self) -> Result<Option<Arc<Node>>> {
        let servers = &self.reader.servers;
        while self.server.is_none() && !self.ended {
            if let Some(next) = self.ahead.front() {
                self.server = Some(servers.master(next).await?);
                self.ahead.pop_front();
                continue;
            }
            match servers.look().await? {
                Fleet::One(server) => (self.server, self.cluster) = (Some(server), None),
                Fleet::Cluster(now) => {
                    let mut unread = match &self.cluster {
                        None => now.masters(),
                        Some(before) => now.gained_since(before),
                    };
                    let mut grown = Vec::new();
                    if self.cluster.is_some() && !self.settled {
                        grown = servers.grown(&now).await?;
                        self.settled = true;
                    }
                    unread.extend(&grown);
                    self.ahead = unread.into_iter().cloned().collect();
                    self.ended = self.ahead.is_empty();
                    self.cluster = Some(now);
                }
            }
        }
        Ok(self.server.clone())
    }

    async fn keys(&self, server: &Node) -> Result<Names> {
        let mut command = redis::cmd("SCAN");
        command.arg(self.cursor).arg("COUNT").arg(ScanOptions::BATCH).arg("TYPE").arg("string");
        if !self.options.prefix.is_empty() {
            // The name of what lies beside a lock mostly begins with a brace.
            command.arg("MATCH").arg(format!("*{}*", literal(&self.options.prefix)));
        }
        let connection = server.pool.connection().await?;
        let answer = connection.link.send(&command).await.map_err(|error| server.failed("scan", &error))?;
        read(answer).ok_or_else(|| server.unreadable("scan"))
    }

    fn is_wanted(&self, entry: &LockEntry) -> bool {
        entry.state != EntryState::Foreign
            || self.options.foreign.iter().any(|prefix| entry.key.as_str().starts_with(prefix))
    }
}

/// What a server names in one go.
struct Names {
    /// Where to continue.
    next: u64,
    /// Keys that locks can have.
    locks: Vec<LockKey>,
    /// The keys of the locks of jobs whose records lie there.
    jobs: Vec<LockKey>,
}

/// Reads an answer of SCAN. Keys that no lock can have are left out.
fn read(answer: Value) -> Option<Names> {
    let Value::Array(parts) = answer else { return None };
    let Ok([Value::BulkString(cursor), Value::Array(found)]) = <[Value; 2]>::try_from(parts) else { return None };
    let next = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let mut names = Names { next, locks: Vec::new(), jobs: Vec::new() };
    for name in found {
        let Value::BulkString(name) = name else { continue };
        let Ok(name) = String::from_utf8(name) else { continue };
        if let Some(lock) = keys::lock_of_job(&name) {
            names.jobs.extend(LockKey::new(lock).ok());
        } else if !keys::is_reserved(&name) {
            names.locks.extend(LockKey::new(name).ok());
        }
    }
    Some(names)
}

/// Writes text so that MATCH takes it as it is.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Names, literal, read};

    fn text(text: &[u8]) -> Value {
        Value::BulkString(text.to_vec())
    }

    #[test]
    fn patterns_are_taken_literally() {
        assert_eq!(literal("a*b[c]?\\é"), "a\\*b\\[c\\]\\?\\\\é");
    }

    #[test]
    fn only_names_of_locks_are_taken() {
        let long = "x".repeat(600);
        let names = [&b"a"[..], b"{a}@queue", b"x:@queue", b"{b}@job", b"\xff\xfe", long.as_bytes()].map(text).to_vec();
        let Names { next, locks, jobs } = read(Value::Array(vec![text(b"17"), Value::Array(names)])).unwrap();
        assert_eq!((next, locks.len(), locks[0].as_str()), (17, 1, "a"));
        assert_eq!((jobs.len(), jobs[0].as_str()), (1, "b"));
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        for bad in [Value::Nil, Value::Array(vec![text(b"1")]), Value::Array(vec![text(b"x"), Value::Array(vec![])])] {
            assert!(read(bad.clone()).is_none(), "{bad:?}");
        }
    }
}
