//! What is asked for on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{check, spec};

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
    /// Has TLC look at the specification in TLA+: claims, claims without a rule, broken assumptions
    Spec {
        /// `Lock`, `Quorum`, or one `.cfg` file of `proof/spec`; all if left out
        name: Option<String>,
        /// With the greater bounds that the `.cfg` files name
        #[arg(long)]
        longer: bool,
    },
}

pub(crate) fn main() -> ExitCode {
    let done = match Args::parse().action {
        Action::Check { history } => check_file(&history),
        Action::Spec { name, longer } => spec::run(name.as_deref(), longer),
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
    Ok(verdicts.iter().all(check::Verdict::is_as_expected))
}
