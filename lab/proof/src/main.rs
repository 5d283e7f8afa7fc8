//! `lock-proof`: runs locks under faults and publishes what happened, so that anyone can check it.
//!
//! `lab/proof/README.md` explains the output, and `lab/proof/schema.md` defines a history.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a harness that is broken stops, and names the place")]

mod caller;
mod check;
mod cli;
#[path = "../peers/distkit.rs"]
mod distkit;
mod harness;
mod kept;
mod model;
mod mutants;
mod peers;
mod race;
mod record;
mod report;
#[path = "../peers/rslock.rs"]
mod rslock;
mod run;
mod spec;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
