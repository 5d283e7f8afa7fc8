//! One row of a run: processes that want locks on servers of one kind, what strikes them, and what is left of it.

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

/// The lease of most, so short that the longer faults outlast it, and the longest that anybody asks for.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(4);
/// How many keys there are for callers of every kind.
pub(crate) const KEYS: u64 = 5;
/// How long a process may need to get a lock once nothing fails any more.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(30);
