//! Locks of other languages, through the adapters of `lab/proof/peers`.

use crate::bench::Bench;
use crate::contestant::Kind;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::fleet::{Sample, count_commands};
use crate::process::work::Work;
use crate::race::{BACKGROUND, DISTKIT, Line, OURS, RAW, RSLOCK, Race};
use crate::row::{MUTEX, PLAIN, US, changes, rate};
use crate::{Result, peers};

/// These locks have no way to wait, so they take part in the proof only.
const TOYS: &str = "SET NX";

/// One task alone, and the cost of each of its pairs.
pub(super) fn lonely(bench: &mut Bench) -> Result<Outcome> {
    let lines = lines(bench, Work::distinct(1).multi_thread());
    let mut outcome = table(bench, "1 task, distinct keys", &lines, rate)?;
    for line in &lines {
        let pace = bench.pace;
        let count = count_commands(bench.server(), line.port, line.kind, line.work, pace)?;
        outcome.figures.push(Figure::new(format!("commands a pair, {}", line.name), "", vec![count]));
    }
    Ok(outcome)
}

pub(super) fn many(bench: &mut Bench) -> Result<Outcome> {
    one_table(bench, "64 tasks, distinct keys", Work::distinct(64), rate)
}

/// 64 tasks that want one key, in this many processes.
pub(super) fn hot<const PROCESSES: u32, const HOLD_MS: u64>(bench: &mut Bench) -> Result<Outcome> {
    let about = if HOLD_MS == 0 { "hold 0" } else { "hold 1 ms" };
    one_table(bench, about, Work::hot(PROCESSES, 64 / PROCESSES).holding(HOLD_MS * 1000), changes)
}

fn one_table(bench: &mut Bench, about: &'static str, work: Work, figure: fn(&Sample) -> f64) -> Result<Outcome> {
    let mut lines = lines(bench, work.multi_thread());
    lines.retain(|line| line.name != BACKGROUND);
    table(bench, about, &lines, figure)
}

/// Runs all lines, and compares this library with each of the others.
fn table(bench: &mut Bench, about: &'static str, lines: &[Line], figure: fn(&Sample) -> f64) -> Result<Outcome> {
    let (mut outcome, race) = (Outcome::default(), Race::run(bench, lines)?);
    for lane in race.lanes.iter().filter(|lane| !lane.name.starts_with(OURS) && lane.name != RAW) {
        let ratio = race.ratio(OURS, lane.name, |sample| figure(sample).max(1.0));
        outcome.targets.push(Target::at_least(format!("us / {}", lane.name), ratio, 1.0));
    }
    outcome.add(about, race);
    Ok(outcome)
}

/// Raw, rslock, distkit, the installed peers, and this library. Prints the peers that are not installed.
fn lines(bench: &Bench, work: Work) -> Vec<Line> {
    let line = |name, kind| Line { name, kind, work, port: bench.port(), site: 0 };
    let mut lines = vec![line(RAW, PLAIN), line(RSLOCK, Kind::Rslock { retry_ms: None }), line(DISTKIT, MUTEX)];
    for (number, peer) in peers::all().into_iter().enumerate() {
        if peer.store != "one" || peer.name.starts_with(TOYS) {
            continue;
        }
        match peer.command {
            Ok(command) => {
                let warms_up = command.starts_with("java");
                lines.push(line(peer.name.leak(), Kind::Peer { number, warms_up }));
            }
            Err(why) => println!("not installed, so not measured: {}: {why}", peer.name),
        }
    }
    lines.extend([line(OURS, US), line(BACKGROUND, Kind::Ours { background: true })]);
    lines
}
