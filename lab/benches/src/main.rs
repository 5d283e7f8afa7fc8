//! Measures the library beside plain Redis commands and other lock crates, in one interleaved run.
//!
//! `lab/benches/README.md` explains the output.

mod bench;
mod child;
mod cli;
mod clock;
mod contestant;
mod outcome;
mod peer;
#[path = "../../proof/src/peers.rs"]
mod peers;
mod process;
mod race;
mod report;
mod row;
mod servers;
mod stats;

use std::error::Error;
use std::process::ExitCode;

/// Why a measurement could not be made. The program prints it and stops.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A result of a step of the benchmark.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
