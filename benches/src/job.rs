//! The work of a process that this program starts.

use serde::{Deserialize, Serialize};

use crate::load::Load;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Load(Load),
    Hold(Hold),
    Drops(Drops),
    Memory { cycles: u64 },
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
