//! The processes that do the work: this same program, with its job as input.

use crate::job::Job;
use crate::row::{attribute, telemetry};
use crate::wire::{hear, say};
use crate::{Result, drops, hold, load};

/// Does the job in the input.
pub(crate) fn run() -> Result<()> {
    match hear()? {
        Job::Load(load) => load::run(&load),
        Job::Hold(hold) => hold::run(&hold),
        Job::Drops(drops) => drops::run(&drops),
        Job::Telemetry { cycles } => say(&serde_json::to_string(&telemetry::measure(cycles)?)?),
        Job::Attribute { cycles } => say(&serde_json::to_string(&attribute::measure(cycles)?)?),
    }
}
