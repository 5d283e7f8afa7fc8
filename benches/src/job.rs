//! The instructions for a process.

use serde::{Deserialize, Serialize};

use crate::drops::Drops;
use crate::hold::Hold;
use crate::load::Load;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Load(Load),
    Hold(Hold),
    Drops(Drops),
    Telemetry { cycles: u64 },
    Attribute { cycles: u64 },
}
