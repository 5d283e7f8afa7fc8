//! `lock-proof`: runs locks under faults and shows what happened, so that nobody has to believe it.
//!
//! `proof/README.md` says how to read what it prints, and `proof/schema.md` what a history is.

mod check;
mod cli;
mod record;
mod spec;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
