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
