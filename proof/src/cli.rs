//! What is asked for on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check;

#[derive(Debug, Parser)]
#[command(
    name = "lock-proof",
    version,
    about = "Runs locks under faults and shows what happened",
    infer_subcommands = true
)]
struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Says what is right and wrong in a history, a line for each of its rows
    Check {
        /// A `history.jsonl`, as `schema.md` describes it
        history: PathBuf,
    },
}

pub(crate) fn main() -> ExitCode {
    let done = match Args::parse().action {
        Action::Check { history } => check_file(&history),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("lock-proof: {why}");
            ExitCode::from(2)
        }
    }
}

/// Prints the verdict of each row. Returns whether all are as they are expected.
fn check_file(history: &Path) -> Result<bool, String> {
    let text =
        std::fs::read_to_string(history).map_err(|error| format!("cannot read {}: {error}", history.display()))?;
    let verdicts = check::check(&text)?;
    for verdict in &verdicts {
        println!("{}", verdict.as_json());
    }
    Ok(verdicts.iter().all(|verdict| verdict.is_as_expected()))
}
