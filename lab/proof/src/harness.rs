//! One row of a run: processes that take locks, their servers, the faults, and the keys that are left at the end.

pub(crate) mod fault;
pub(crate) mod fleet;
mod left;
mod plan;
mod refusal;
mod resource;
pub(crate) mod row;
pub(crate) mod servers;
mod worker;
mod world;

use std::time::Duration;

pub(crate) use worker::Worker;

/// The usual lease, which the longer faults outlast, and the longest lease that any caller asks for.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(4);
/// How many keys there are for callers of every kind.
pub(crate) const KEYS: u64 = 5;
/// How long a process may need to get a lock after the faults have ended.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(30);
