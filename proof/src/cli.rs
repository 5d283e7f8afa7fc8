//! What is asked for on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::kept::Options;
use crate::report::page;
use crate::run::{self, replay};
use crate::{caller, check, model, mutants, race, rslock, spec};

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
    /// Runs ours and others under faults, and breaks each assumption on purpose (the default)
    Run(RunArgs),
    /// Runs a run again from its folder: the same seed, options and faults
    Replay {
        /// The folder, which `run` has named
        folder: PathBuf,
        /// Where the folder of the new run goes
        #[arg(long, default_value = "target/proof")]
        out: PathBuf,
    },
    /// Goes on with a run that was interrupted, in its folder; the row that had not ended begins anew
    Resume {
        /// The folder, in which there is a `run.json` as soon as one row has ended
        folder: PathBuf,
    },
    /// Says what is right and wrong in a history, a line for each of its rows
    Check {
        /// A `history.jsonl`, as `schema.md` describes it
        history: PathBuf,
    },
    /// Prints `docs/proof.md` from the files of a run
    Page {
        /// The folder, which `run` has named
        folder: PathBuf,
    },
    /// Has TLC look at the specification in TLA+: claims, claims without a rule, broken assumptions
    Spec {
        /// How `.cfg` files of `proof/spec` are called or begin, as `Lock`, `Quorum-broken` or `fence`; all if left out.
        /// `trace` and the folder of a run check what its store logged, `trace` alone a run of its own;
        /// `exchange` checks the counter-examples of lock-core's model, `back` those that the model is given;
        /// `actions` counts how often each action happened in some states of each, or of those named
        names: Vec<String>,
        /// With the greater bounds that the `.cfg` files name
        #[arg(long)]
        longer: bool,
        /// Stops each claim when it has so many distinct states, however long that takes
        #[arg(long)]
        states: Option<u64>,
    },
    /// Plants bugs in our own code, and shows by which test or run each is noticed
    Mutants {
        /// How patches of `proof/mutants` are called; all if left out
        names: Vec<String>,
        /// How long faults strike where a run is to notice
        #[arg(long, default_value = "1.5")]
        minutes: String,
        /// Draws the faults of these runs
        #[arg(long, default_value = "26")]
        seed: String,
    },
    /// Forces the race between check and commit in PostgreSQL: ours with a pin and with a look, and pg_lease
    Race,
    /// Has the model tell what goes wrong without one of its rules, with a picture
    Model {
        /// How the rule is called; a name that is none lists them
        #[arg(long, value_name = "RULE")]
        without: String,
    },
    /// A process of a run that wants locks
    #[command(hide = true)]
    Caller { workload: String, words: Vec<String> },
    /// An adapter that is part of this program
    #[command(hide = true)]
    Peer { name: String, url: String, ttl_ms: u64 },
}

#[derive(Debug, ClapArgs)]
struct RunArgs {
    /// How long faults strike, in all; starting, waiting and ending come on top
    #[arg(long, default_value = "5", allow_hyphen_values = true)]
    minutes: String,
    /// Draws the same faults again
    #[arg(long, allow_hyphen_values = true)]
    seed: Option<String>,
    /// Only ours, over one of these: one, sentinel, cluster, quorum (may be repeated)
    #[arg(long = "store")]
    stores: Vec<String>,
    /// Only a crowd of so many processes of ours, over one server or the stores that are named; half of them wait for long
    #[arg(long, value_name = "PROCESSES", value_parser = clap::value_parser!(u16).range(2..))]
    crowd: Option<u16>,
    /// Only rows whose names contain this (may be repeated)
    #[arg(long = "only")]
    only: Vec<String>,
    /// Another lock to be run beside: NAME=COMMAND of an adapter, see peers/README.md (may be repeated)
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
        Some(Action::Peer { name: _, url, ttl_ms }) => {
            rslock::main(&url, ttl_ms);
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
