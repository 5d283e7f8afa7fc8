//! The jobs of the processes that this program starts.

use serde::{Deserialize, Serialize};

use crate::process::load::Load;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Load(Load),
    Hold(Hold),
    Drops(Drops),
    Memory { cycles: u64 },
    Crowd(Crowd),
    Recover(Recover),
    Postgres(Statements),
    Kubernetes(Statements),
    ZooKeeper(Statements),
}

/// A measurement on PostgreSQL, Kubernetes or ZooKeeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Statements {
    pub(crate) url: String,
    /// How many times each step is measured alone.
    pub(crate) steps: u32,
    /// How long many tasks run each line, ms.
    pub(crate) window_ms: u64,
    /// The line that runs first with many tasks; another one in each round.
    pub(crate) first: u32,
}

/// Waiters, and the locks or the role that they wait for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    pub(crate) port: u16,
    /// Each manager has connections of its own, as a process has.
    pub(crate) managers: u32,
    pub(crate) wanted: Wanted,
}

/// The target of every manager of a crowd.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// Each of this many locks.
    Locks(u32),
    /// The leadership of one election.
    Leadership,
}

/// Managers that lose their server for a while.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Recover {
    pub(crate) port: u16,
    pub(crate) managers: u32,
}

/// Locks to hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) port: u16,
    pub(crate) locks: u32,
    pub(crate) ttl_ms: u64,
}

/// Guards to drop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drops {
    pub(crate) port: u16,
    pub(crate) tasks: u32,
    pub(crate) guards: u32,
}
