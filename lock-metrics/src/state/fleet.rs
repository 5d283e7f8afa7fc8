//! The findings of inspectors in Redis, kept for scrapes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;

use crate::state::{MAX_SITES, OTHER};
use crate::words::labels::MODES;
use crate::words::time::Moment;

/// The number of distinct lock names that one process keeps apart in one store. It covers the whole fleet and not one
/// service.
#[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
pub(crate) const MAX_FLEET_LOCKS: usize = 2_000;
/// How many keys with a queue are kept for the live view. Further queues are unknown.
const MAX_QUEUES: usize = 10_000;

/// The last scan of a store by the elected instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    /// By lock name: every name that was seen since the election.
    pub(crate) locks: BTreeMap<String, FleetLock>,
    /// The queues of held keys, unless there are too many.
    queues: Arc<BTreeMap<LockKey, u64>>,
    pub(crate) scan_duration: Duration,
    pub(crate) truncated: bool,
    /// Keys that were counted as `other` because the limit was reached, in all scans since the election.
    pub(crate) overflow: u64,
    pub(crate) last_success: Moment,
}

/// The locks in Redis with one lock name.
#[derive(Clone, Debug)]
pub(crate) struct FleetLock {
    /// By mode. `None` for a mode that was not seen since the election.
    pub(crate) held: [Option<u32>; MODES.len()],
    /// `None` if one of the queues could not be read.
    pub(crate) waiters: Option<u32>,
    pub(crate) oldest_hold: Moment,
    /// Covers only the keys that have an expiry.
    pub(crate) min_ttl: Option<Duration>,
    pub(crate) without_ttl: u32,
    /// Held by commands of `lockctl run` and by Redisson, for which no process exports metrics. The second number counts the commands
    /// that are older than their own threshold, the third the processes that queue for those.
    pub(crate) commands: [u32; 3],
    /// How long a run of the job has been missing, for the latest job of that name. `None` if it is not a job.
    pub(crate) job_overdue: Option<Duration>,
    /// The oldest pin of an open transaction: its session, and when it began.
    pub(crate) oldest_pin: Option<(String, Moment)>,
    /// By the holder's call site: when the oldest hold with a queue began, and how many processes are in the queue.
    pub(crate) waited: BTreeMap<String, (Moment, u32)>,
}

impl Default for FleetLock {
    fn default() -> Self {
        Self {
            held: [Some(0), None, None, None],
            waiters: Some(0),
            oldest_hold: Moment::default(),
            min_ttl: None,
            without_ttl: 0,
            commands: [0; 3],
            job_overdue: None,
            oldest_pin: None,
            waited: BTreeMap::new(),
        }
    }
}

impl Fleet {
    /// Notes the queue of a key, if it could be read.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn note_queue(&mut self, key: &LockKey, waiters: Option<u64>) {
        let queues = Arc::make_mut(&mut self.queues);
        if let Some(waiters) = waiters
            && queues.len() < MAX_QUEUES
        {
            queues.insert(key.clone(), waiters);
        }
    }

    /// Returns how many processes were in the queue of a key. `None` if unknown.
    pub(crate) fn queue(&self, key: &LockKey) -> Option<u64> {
        self.queues.get(key).copied()
    }
}

impl FleetLock {
    /// Returns the form in which it is exported when none of its locks exists any more.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn emptied(&self) -> Self {
        let (held, job_overdue) = (self.held.map(|held| held.map(|_| 0)), self.job_overdue.map(|_| Duration::ZERO));
        Self { held, job_overdue, ..Self::default() }
    }

    /// Notes a pin of an open transaction.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn note_pin(&mut self, session: &str, since: Moment) {
        if self.oldest_pin.as_ref().is_none_or(|(_, oldest)| since < *oldest) {
            self.oldest_pin = Some((session.to_owned(), since));
        }
    }

    /// Notes a hold that processes queue for.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn note_waited(&mut self, site: &str, since: Moment, waiters: u32) {
        let room = self.waited.len() < MAX_SITES || self.waited.contains_key(site);
        let oldest = self.waited.entry(if room { site } else { OTHER }.to_owned()).or_insert((since, waiters));
        if since < oldest.0 {
            *oldest = (since, waiters);
        }
    }
}
