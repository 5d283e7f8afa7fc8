//! Walks slowly through the locks of a store.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::inspect::FleetReader;
use lock_store::contract::backend::{DoneMark, EntryState, JobRecord, JobVersion, LockEntry, ScanPosition, SyncReport};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Clock;

/// Sets which keys a [`Scan`] visits, and how much it may cost.
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
    /// How many keys the store visits at a time. In a measurement with Redis, ten times as many made other clients wait
    /// for 5 ms instead of 0.5 ms.
    const BATCH: u32 = 100;

    /// Visits every key, at most a million, with a pause of 1 ms after each hundred.
    pub fn new() -> Self {
        Self { prefix: String::new(), foreign: Vec::new(), pause: Duration::from_millis(1), max_keys: 1_000_000 }
    }

    /// Visits only keys with this prefix.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Counts strings with this prefix in a foreign format as locks of other clients. May be called more than once.
    /// Other such strings are left out.
    pub fn with_foreign_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.foreign.push(prefix.into());
        self
    }

    /// Sets the pause after each hundred keys.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets about how many keys are visited before the scan ends [truncated](Scan::is_truncated). In a cluster, this
    /// counts all masters together.
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

/// A walk through the locks of a store, batch by batch: of one server, or of every master of a cluster.
///
/// A lock that is taken or freed during the scan may or may not be seen. A lock that is held all the time is seen once.
///
/// If a master of a cluster cannot be reached, or is not a master any more, the scan returns an error that names it. A
/// scan that begins after the failover reads its successor. When all masters have been read, masters that have taken
/// over slots since, or are doing so, are read again. A lock whose slot moves during the scan is therefore not missed.
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
    foreign: Arc<[String]>,
    /// Where the scan continues. `None` at the beginning.
    after: Option<ScanPosition>,
    ended: bool,
    visited: u64,
    truncated: bool,
    /// The locks returned so far. A store may name a key twice.
    given: HashSet<LockKey>,
    /// The jobs found so far.
    jobs: BTreeMap<LockKey, JobRecord>,
    /// The marks found so far.
    done: BTreeMap<(LockKey, JobVersion), DoneMark>,
    /// The number of left-out strings that look like locks of other clients, and one of them.
    left_out: (u64, Option<LockKey>),
    /// The names of the servers read so far.
    read: BTreeSet<String>,
    members: Option<SyncReport<u64>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(reader: &'a FleetReader, mut options: ScanOptions) -> Self {
        // Both prefixes are relative to the namespace.
        options.prefix.insert_str(0, reader.key_prefix());
        let foreign = options.foreign.iter().map(|prefix| format!("{}{prefix}", reader.key_prefix())).collect();
        Self {
            reader,
            options,
            foreign,
            after: None,
            ended: false,
            visited: 0,
            truncated: false,
            given: HashSet::new(),
            jobs: BTreeMap::new(),
            done: BTreeMap::new(),
            left_out: (0, None),
            read: BTreeSet::new(),
            members: None,
        }
    }

    /// Reads the next locks. A batch may be empty although more follow. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured). The message names the server. In a quorum,
    /// the scan goes on without members that do not answer. It fails at its end if fewer than a majority answered.
    ///
    /// # Cancel safety
    ///
    /// Safe: the same batch is read again.
    pub async fn next(&mut self) -> Result<Option<Vec<LockEntry>>> {
        if self.ended {
            let unknown = self.members.as_ref().filter(|members| !members.has_majority());
            return unknown.map_or(Ok(None), |members| {
                Err(members.undecided("too few members of the quorum answered to tell which locks are held"))
            });
        }
        let is_full = self.visited >= self.options.max_keys;
        self.truncated |= is_full;
        if is_full && self.members.is_none() {
            self.ended = true;
            return Ok(None);
        }
        if self.visited > 0 {
            let clock = Clock::system();
            clock.sleep_until(clock.now().after(self.options.pause)).await;
        }
        let store = self.reader.store.backend();
        // A quorum returns what it knows of the keys that were visited.
        let limit = if is_full { 0 } else { ScanOptions::BATCH };
        let (prefix, foreign) = (self.options.prefix.clone(), Arc::clone(&self.foreign));
        let page = store.scan_with_foreign(prefix, foreign, limit, self.after.clone()).await?;
        self.ended = page.next.is_none();
        self.after = page.next;
        self.visited += page.visited;
        self.read.insert(page.node);
        self.members = page.members;
        self.jobs.extend(page.jobs);
        self.done.extend(page.done.into_iter().map(|(key, mark)| ((key, mark.version.clone()), mark)));
        let mut entries = Vec::new();
        for entry in page.entries {
            if !self.is_wanted(&entry) {
                self.leave_out(entry);
            } else if self.given.insert(entry.key.clone()) {
                entries.push(entry);
            }
        }
        Ok(Some(entries))
    }

    /// Returns whether the scan ended early because it had visited as many keys as allowed.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the names of the servers that were read so far: the masters of a cluster, or one server.
    #[must_use]
    pub fn servers(&self) -> Vec<&str> {
        self.read.iter().map(String::as_str).collect()
    }

    /// Returns which members of a quorum were read so far, and how many jobs each has listed. After an error, the scan goes
    /// on without that member. `None` if the store is not a quorum.
    #[must_use]
    pub fn members(&self) -> Option<&SyncReport<u64>> {
        self.members.as_ref()
    }

    /// Returns the records of jobs with a period that were found so far, by the key of their lock. They exist even
    /// while no process runs the job.
    pub fn jobs(&self) -> impl Iterator<Item = (&LockKey, &JobRecord)> {
        self.jobs.iter()
    }

    /// Returns the marks of finished versions that were found so far, by the key of the lock.
    pub fn done(&self) -> impl Iterator<Item = (&LockKey, &DoneMark)> {
        self.done.iter().map(|((key, _), mark)| (key, mark))
    }

    /// Returns about how many left-out strings look like locks of other clients, and one of them. Such strings are
    /// short and have an expiry, or have `lock` or `mutex` in their name. To see them, give their prefix to
    /// [`ScanOptions::with_foreign_prefix`].
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

    fn is_wanted(&self, entry: &LockEntry) -> bool {
        entry.state != EntryState::Foreign || self.foreign.iter().any(|prefix| entry.key.as_str().starts_with(prefix))
    }
}
