//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::kept::Options;
use crate::report::page;
use crate::run::{self, replay};
use crate::{caller, check, distkit, model, mutants, race, rslock, spec};

/// A month, in minutes.
const LONGEST: f64 = 43_200.0;

#[derive(Debug, Parser)]
#[command(
    name = "lock-proof",
    version,
    about = "Runs locks under faults and shows what happened",
    infer_subcommands = true,
    args_conflicts_with_subcommands = true
)]
struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Runs this library and others under faults, and breaks each assumption on purpose (the default)
    Run(RunArgs),
    /// Repeats a run from its folder, with the same seed, options and faults
    Replay {
        /// The folder that `run` printed
        folder: PathBuf,
        /// Where the folder of the new run goes
        #[arg(long, default_value = "target/proof")]
        out: PathBuf,
    },
    /// Continues an interrupted run in its folder; the unfinished row starts again
    Resume {
        /// The folder; it has a `run.json` as soon as one row has ended
        folder: PathBuf,
    },
    /// Judges a history, with one line for each of its rows
    Check {
        /// A `history.jsonl`, as `schema.md` describes it
        history: PathBuf,
    },
    /// Prints `docs/proof.md` from the files of a run
    Page {
        /// The folder that `run` printed
        folder: PathBuf,
    },
    /// Checks the TLA+ specification with TLC: claims, claims without a rule, broken assumptions
    Spec {
        /// Names or prefixes of `.cfg` files in `lab/proof/spec`, such as `Lock`, `Quorum-broken` or `fence`; all if left out.
        /// `trace` with the folder of a run checks the log of its store; `trace` alone makes a run of its own and checks that;
        /// `actions` counts how often each action happened in some states of each file, or of the named ones
        names: Vec<String>,
        /// Uses the greater bounds of the `.cfg` files
        #[arg(long)]
        longer: bool,
        /// Stops each claim at this many distinct states, however long that takes
        #[arg(long)]
        states: Option<u64>,
    },
    /// Plants bugs in this library, and shows which test or run catches each
    Mutants {
        /// Names of patches in `lab/proof/mutants`; all if left out
        names: Vec<String>,
        /// How long faults strike in runs that must catch a bug
        #[arg(long, default_value = "1.5")]
        minutes: String,
        /// The seed of the faults in these runs
        #[arg(long, default_value = "26")]
        seed: String,
    },
    /// Forces the race between check and commit in PostgreSQL: this library with a pin, with a check instead, and pg_lease
    Race,
    /// Shows what goes wrong in the model without one of its rules, with a picture
    Model {
        /// The name of the rule; an unknown name lists them all
        #[arg(long, value_name = "RULE")]
        without: String,
    },
    /// A process of a run that takes locks
    #[command(hide = true)]
    Caller { workload: String, words: Vec<String> },
    /// An adapter that is part of this program
    #[command(hide = true)]
    Peer { name: String, url: String, ttl_ms: u64 },
}

#[derive(Debug, ClapArgs)]
struct RunArgs {
    /// How long faults strike in total; starting, waiting and stopping take extra time
    #[arg(long, default_value = "5", allow_hyphen_values = true)]
    minutes: String,
    /// The seed of the faults: the same seed draws the same faults
    #[arg(long, allow_hyphen_values = true)]
    seed: Option<String>,
    /// Only this library, over one of these: one, sentinel, cluster, quorum (may be repeated)
    #[arg(long = "store")]
    stores: Vec<String>,
    /// Only a crowd of this many processes of this library, over one server or the named stores; half of them wait for long
    #[arg(long, value_name = "PROCESSES", value_parser = clap::value_parser!(u16).range(2..))]
    crowd: Option<u16>,
    /// Only rows whose names contain this (may be repeated)
    #[arg(long = "only")]
    only: Vec<String>,
    /// Another lock to run as well: NAME=COMMAND of an adapter, see peers/README.md (may be repeated)
    #[arg(long = "peer")]
    peers: Vec<String>,
    /// Where the folder of the run goes
    #[arg(long, default_value = "target/proof")]
    out: PathBuf,
}

impl RunArgs {
    fn options(&self) -> Result<Options, String> {
        let seed = match &self.seed {
            None => fastrand::u64(..),
            Some(text) => text.parse().map_err(|_| format!("the seed {text:?} is no number from 0 to {}", u64::MAX))?,
        };
        let minutes = self.minutes.parse::<f64>().ok().filter(|minutes| *minutes > 0.0 && *minutes <= LONGEST);
        let minutes = minutes.ok_or_else(|| format!("--minutes {:?} is no time of up to {LONGEST}", self.minutes))?;
        Ok(Options {
            seed,
            minutes,
            stores: self.stores.clone(),
            crowd: self.crowd,
            only: self.only.clone(),
            peers: self.peers.clone(),
        })
    }

    fn run(&self) -> Result<bool, String> {
        Ok(run::run(self.options()?, &self.out, None)?.1)
    }
}

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.action {
        None => args.run.run(),
        Some(Action::Run(wanted)) => wanted.run(),
        Some(Action::Replay { folder, out }) => replay::replay(&folder, &out),
        Some(Action::Resume { folder }) => run::resume(&folder),
        Some(Action::Check { history }) => check_file(&history),
        Some(Action::Page { folder }) => page::page(&folder).map(|page| {
            print!("{page}");
            true
        }),
        Some(Action::Spec { names, longer, states }) => spec::run(&names, longer, states),
        Some(Action::Mutants { names, minutes, seed }) => {
            mutants::run(&names, &mutants::Faults { minutes: &minutes, seed: &seed })
        }
        Some(Action::Race) => race::run(),
        Some(Action::Model { without }) => model::without(&without).map(|story| {
            print!("{story}");
            true
        }),
        Some(Action::Caller { workload, words }) => {
            caller::main(&workload, &words);
            Ok(true)
        }
        Some(Action::Peer { name, url, ttl_ms }) => {
            let main = if name == "distkit" { distkit::main } else { rslock::main };
            main(&url, ttl_ms);
            Ok(true)
        }
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

/// Prints the verdict on each row. Returns whether every row is as expected.
fn check_file(history: &Path) -> Result<bool, String> {
    let text =
        std::fs::read_to_string(history).map_err(|error| format!("cannot read {}: {error}", history.display()))?;
    let verdicts = check::check(&text)?;
    for verdict in &verdicts {
        println!("{}", verdict.as_json());
    }
    Ok(verdicts.iter().all(check::Verdict::is_as_expected))
}
