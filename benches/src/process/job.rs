//! The work of a process that this program starts.

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
}

/// What is measured on a PostgreSQL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Statements {
    pub(crate) url: String,
    /// How often each thing is done by itself.
    pub(crate) steps: u32,
    /// For how long many tasks do each thing, ms.
    pub(crate) window_ms: u64,
    /// Which of the lines of many tasks is the first: another one in each round.
    pub(crate) first: u32,
}

/// Who waits, and for what.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    pub(crate) port: u16,
    /// Each with connections of its own, as a process has.
    pub(crate) managers: u32,
    pub(crate) wanted: Wanted,
}

/// What every manager of a crowd wants.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// Each of so many locks.
    Locks(u32),
    /// To lead, in the place of all others.
    Leadership,
}

/// Whom the server is taken away from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Recover {
    pub(crate) port: u16,
    pub(crate) managers: u32,
}

/// Which locks to hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) port: u16,
    pub(crate) locks: u32,
    pub(crate) ttl_ms: u64,
}

/// How many guards to drop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drops {
    pub(crate) port: u16,
    pub(crate) tasks: u32,
    pub(crate) guards: u32,
}
