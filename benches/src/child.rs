//! The processes that do the work: this program again, told over its input what to do.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::hold::{self, Hold};
use crate::load::{self, Load};
use crate::row::{attribute, telemetry};

/// What a process is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Load(Load),
    Hold(Hold),
    Telemetry { cycles: u64 },
    Attribute { cycles: u64 },
}

/// The moments between which is measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Go {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Does the job that the input names.
pub(crate) fn run() -> Result<()> {
    match hear()? {
        Job::Load(load) => load::run(&load),
        Job::Hold(hold) => hold::run(&hold),
        Job::Telemetry { cycles } => say(&serde_json::to_string(&telemetry::measure(cycles)?)?),
        Job::Attribute { cycles } => say(&serde_json::to_string(&attribute::measure(cycles)?)?),
    }
}

/// Reads one line of the input.
pub(crate) fn hear<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes one line.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
