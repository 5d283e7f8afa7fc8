//! `lock-proof`: runs locks under faults and shows what happened, so that nobody has to believe it.
//!
//! `proof/README.md` says how to read what it prints, and `proof/schema.md` what a history is.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a harness that is broken stops, and names the place")]

mod caller;
mod check;
mod cli;
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
