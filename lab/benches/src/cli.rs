//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::bench::{Bench, Scale};
use crate::contestant::Kind;
use crate::process::job::Job;
use crate::process::load;
use crate::process::wire::{hear, say};
use crate::report::Report;
use crate::row::{FLEETS, PEERS, ROWS, Row, crowd, drops, fleets, kubernetes, memory, postgres, watchdog, zookeeper};
use crate::servers::files;
use crate::servers::keeper;
use crate::servers::proxy;
use crate::{Result, peer};

/// Measures the lock library beside plain Redis commands and other lock crates.
///
/// Starts a redis-server of its own on loopback and stops it at the end. Every figure is a median of
/// interleaved rounds; compare ratios, not rates. The exit code says whether it could be measured
/// and no lock had two holders, not whether the targets were met.
#[derive(Debug, Parser)]
#[command(name = "lock-bench", version)]
struct Arguments {
    /// Take about two minutes: shorter windows, fewer rounds, smaller watchdog, growth and fleets
    #[arg(long)]
    quick: bool,
    /// As small as possible, for the test of this program
    #[arg(long, hide = true)]
    smoke: bool,
    /// Measure only this row; can be given more than once
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Measure what many processes cost: the rows fleets, waits and candidates, less than five minutes
    #[arg(long)]
    fleets: bool,
    /// Measure locks of other languages as well, if sh scripts/need-peers.sh has installed them
    #[arg(long)]
    peers: bool,
    /// How many rounds [default: 5, with --quick 3]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Also count the instructions of client and server with callgrind: needs valgrind and a special build
    #[arg(long)]
    instructions: bool,
    /// Also write all measured values to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// List the rows and what each measures
    #[arg(long)]
    list: bool,
    /// The server program to start
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    redis_server: String,
    #[command(subcommand)]
    part: Option<Part>,
}

/// The jobs of processes that this program starts itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Does the job that its input names
    #[command(hide = true)]
    Work,
    /// Runs a delaying proxy
    #[command(hide = true)]
    Delay {
        #[arg(long)]
        upstream: u16,
        #[arg(long)]
        micros: u64,
    },
    /// Runs servers until the input ends
    #[command(hide = true)]
    KeepServers {
        #[arg(long)]
        program: String,
        #[arg(long)]
        formation: String,
    },
}

/// Runs what the command line requests.
pub(crate) fn run() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.part {
        Some(Part::Work) => work(),
        Some(Part::Delay { upstream, micros }) => proxy::run(*upstream, Duration::from_micros(*micros)),
        Some(Part::KeepServers { program, formation }) => keeper::run(program, formation),
        None if arguments.list => {
            for row in &ROWS {
                println!("{:<16} {}", row.name, row.about);
            }
            Ok(())
        }
        None => measure(arguments),
    }
}

/// Does the job that the input names.
fn work() -> Result<()> {
    files::allow_all();
    match hear()? {
        Job::Load(load) => match load.kind {
            Kind::Peer { number, .. } => peer::run(number, &load),
            _ => load::run(&load),
        },
        Job::Hold(hold) => watchdog::hold(&hold),
        Job::Drops(drops) => drops::drop_guards(&drops),
        Job::Crowd(crowd) => crowd::wait(&crowd),
        Job::Recover(recover) => fleets::recover(&recover),
        Job::Postgres(statements) => postgres::measure(&statements),
        Job::Kubernetes(statements) => kubernetes::measure(&statements),
        Job::ZooKeeper(statements) => zookeeper::measure(&statements),
        Job::Memory { cycles } => say(&serde_json::to_string(&memory::measure(cycles)?)?),
    }
}

fn measure(arguments: Arguments) -> Result<()> {
    let rows = chosen(&arguments.rows, arguments.fleets, arguments.peers)?;
    let scale = match (arguments.smoke, arguments.quick) {
        (true, _) => Scale::Smoke,
        (_, true) => Scale::Quick,
        _ => Scale::Full,
    };
    if cfg!(debug_assertions) && scale != Scale::Smoke {
        eprintln!("lock-bench: this build is not optimised; use cargo lab lock-bench");
    }
    let mut bench = Bench::start(arguments.redis_server, scale, arguments.rounds, arguments.instructions)?;
    let mut report = Report::begin(&mut bench)?;
    for row in rows {
        bench.progress(row.name);
        let outcome = row.measure(&mut bench)?;
        report.add(row, outcome);
    }
    if let Some(path) = arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    report.finish()
}

fn chosen(names: &[String], fleets: bool, peers: bool) -> Result<Vec<&'static Row>> {
    let of_fleets = FLEETS.iter().filter(|_| fleets).map(|name| (*name).to_owned());
    let names: Vec<String> = names.iter().cloned().chain(of_fleets).collect();
    // Rows with other libraries run only on request.
    let all = || ROWS.iter().chain(&PEERS);
    if let Some(unknown) = names.iter().find(|name| all().all(|row| row.name != **name)) {
        let known: Vec<&str> = all().map(|row| row.name).collect();
        return Err(format!("there is no row {unknown:?}; the rows are {}", known.join(", ")).into());
    }
    if names.is_empty() && !peers {
        return Ok(ROWS.iter().collect());
    }
    let is_peer = |row: &Row| PEERS.iter().any(|peer| peer.name == row.name);
    Ok(all().filter(|row| peers && is_peer(row) || names.iter().any(|name| name == row.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::chosen;
    use crate::row::{PEERS, ROWS};

    #[test]
    fn rows_are_chosen_by_name_and_those_of_fleets_by_one_word() {
        let names = |names: &[&str], fleets, peers| -> Vec<&str> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&names, fleets, peers).unwrap().iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[], false, false).len(), ROWS.len());
        assert_eq!(names(&["many"], false, false), ["many"]);
        assert_eq!(names(&[], true, false), ["fleets", "waits", "candidates"]);
        assert_eq!(names(&["many", "waits"], true, false), ["many", "fleets", "waits", "candidates"]);
        assert_eq!(names(&["lonely"], false, false), ["lonely"]);
        assert_eq!(names(&["many"], false, true).len(), 1 + PEERS.len());
        assert!(chosen(&["no-such-row".to_owned()], true, false).is_err());
    }
}
