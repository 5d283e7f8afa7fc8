//! One node of the store, as its notices describe it.

use crate::state::counts::{COMMAND_BUCKETS, CONFIRM_BUCKETS, Counter};
use crate::state::histogram::Histogram;
use crate::words::labels;

/// One node of the store.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// By [`labels::OPS`].
    pub(crate) commands: [Histogram<COMMAND_BUCKETS>; labels::OPS.len()],
    /// By [`labels::OPS`] and [`labels::ERROR_KINDS`].
    pub(crate) errors: [Counter<{ labels::ERROR_KINDS.len() }>; labels::OPS.len()],
    /// Unknown until the watchdog reports it: a false 0 would be a false alarm.
    pub(crate) connected: Option<bool>,
    /// The index of its policy in [`labels::POLICIES`], if it may evict.
    pub(crate) policy: Option<usize>,
    pub(crate) failovers: u64,
    /// By [`labels::CHANGES`].
    pub(crate) changes: [u64; labels::CHANGES.len()],
    /// By [`labels::REDIRECTIONS`].
    pub(crate) redirections: [u64; labels::REDIRECTIONS.len()],
    /// Its replicas, and how many must have a write.
    pub(crate) replicas: Option<(u32, u32)>,
    /// Whether a failover may lose locks, and nobody has chosen that.
    pub(crate) exposed: Option<bool>,
    /// The identity of its server.
    pub(crate) server: Option<Server>,
    /// How many of its slots are being moved, if it is a master of a cluster.
    pub(crate) slots_open: Option<u32>,
    /// By [`labels::CONFIRMED_BY`].
    pub(crate) confirmations: [Histogram<CONFIRM_BUCKETS>; labels::CONFIRMED_BY.len()],
    pub(crate) shortfalls: u64,
    /// Its members, if it is a quorum.
    pub(crate) quorum: Option<Members>,
    /// How many claims were given to it again, if it is a member of a quorum.
    pub(crate) repairs: Option<u64>,
}

/// How many digits of an id are shown: enough to tell the servers of a fleet apart.
const DIGITS: usize = 8;

/// The identity of a node's server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) kind: &'static str,
}

impl Server {
    pub(crate) fn new(id: &str, version: &str, kind: &'static str) -> Self {
        Self { id: id.chars().take(DIGITS).collect(), version: version.to_owned(), kind }
    }
}

/// The members of a quorum.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By [`labels::MEMBER_STATES`].
    pub(crate) states: [u32; labels::MEMBER_STATES.len()],
    pub(crate) majority: u32,
    pub(crate) degraded_holds: u32,
    /// By [`labels::PHASES`].
    pub(crate) rounds: [u64; labels::PHASES.len()],
}
