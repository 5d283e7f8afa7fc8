//! What inspectors found in Redis, kept for scrapes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::words::labels::MODES;
use crate::words::time::Moment;

/// The last scan of a store by the elected instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    /// By lock name: every name that was seen since the election.
    pub(crate) locks: BTreeMap<String, FleetLock>,
    pub(crate) scan_duration: Duration,
    pub(crate) truncated: bool,
    pub(crate) last_success: Moment,
}

/// What Redis holds under one lock name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetLock {
    /// By mode; `None` for one in which it was not seen since the election.
    pub(crate) held: [Option<u32>; MODES.len()],
    pub(crate) waiters: u32,
    pub(crate) oldest_hold: Moment,
    /// Covers only the keys that have one.
    pub(crate) min_ttl: Option<Duration>,
    pub(crate) without_ttl: u32,
    /// For how long a run of the job has been missing, of the latest of that name; `None` if it is no job.
    pub(crate) job_overdue: Option<Duration>,
}

impl Default for FleetLock {
    fn default() -> Self {
        Self {
            held: [Some(0), None, None],
            waiters: 0,
            oldest_hold: Moment::default(),
            min_ttl: None,
            without_ttl: 0,
            job_overdue: None,
        }
    }
}

impl FleetLock {
    /// Returns it as it is exported when nothing of it is found any more.
    pub(crate) fn emptied(&self) -> Self {
        let (held, job_overdue) = (self.held.map(|held| held.map(|_| 0)), self.job_overdue.map(|_| Duration::ZERO));
        Self { held, job_overdue, ..Self::default() }
    }
}
