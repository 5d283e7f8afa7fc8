//! What inspectors found in Redis, kept for scrapes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Moment;

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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetLock {
    pub(crate) held: u32,
    pub(crate) waiters: u32,
    pub(crate) oldest_hold: Moment,
    /// Covers only the keys that have one.
    pub(crate) min_ttl: Option<Duration>,
    pub(crate) without_ttl: u32,
}
