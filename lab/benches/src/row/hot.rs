//! All tasks compete for one key.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::fleet::{Sample, count_commands};
use crate::process::work::Work;
use crate::race::{DISTKIT, LOCAL, Line, OURS, RAW, RSLOCK, Race, TUNED};
use crate::row::{MUTEX, PLAIN, US, changes, rate, share};

/// The best retry pause of rslock on a hot key, ms.
const TUNED_RETRY_MS: u64 = 2;

pub(super) fn process(bench: &mut Bench) -> Result<Outcome> {
    let (mut outcome, work) = (Outcome::default(), Work::hot(1, 64));
    for (threads, work, reach) in
        [("current-thread", work, 500_000.0), ("multi-thread", work.multi_thread(), 350_000.0)]
    {
        let mut lines = contestants(work, bench.port());
        lines.push(Line { name: LOCAL, kind: Kind::Local, ..lines[0] });
        let race = Race::run(bench, &lines)?;
        let beside = |peer| race.ratio(OURS, peer, changes_or_one);
        outcome.targets.extend([
            Target::at_least(format!("owner changes per second, {threads}"), race.median(OURS, changes), reach),
            Target::at_least(format!("owner changes, us / rslock, {threads}"), beside(RSLOCK), 1000.0),
            Target::at_least(format!("owner changes, us / rslock tuned, {threads}"), beside(TUNED), 100.0),
            Target::at_least(format!("owner changes, us / distkit, {threads}"), beside(DISTKIT), 500.0),
        ]);
        outcome.add(threads, race);
    }
    commands(bench, &mut outcome, ours(work, bench.port()), 0.02)?;
    Ok(outcome)
}

pub(super) fn fleet(bench: &mut Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let race = Race::run(bench, &contestants(Work::hot(4, 16), bench.port()))?;
    outcome.targets.extend([
        Target::at_least("owner changes, us / rslock, hold 0", race.ratio(OURS, RSLOCK, changes_or_one), 500.0),
        Target::at_least("owner changes, us / distkit, hold 0", race.ratio(OURS, DISTKIT, changes_or_one), 250.0),
        Target::at_least("share of the poorest process, hold 0", race.median(OURS, share), 0.95),
    ]);
    outcome.add("hold 0", race);

    let work = Work::hot(4, 16).holding(1000);
    let mut lines = contestants(work, bench.port());
    // The same number of tasks on a mutex in one process: the bound for any lock.
    let bound = Work::hot(1, work.waiters()).holding(work.hold_us);
    lines.push(Line { name: LOCAL, kind: Kind::Local, work: bound, ..lines[0] });
    let pace = bench.long();
    let race = Race::among(bench.rounds, pace, std::slice::from_mut(&mut bench.site), &lines)?;
    // A sleep of 1 ms takes longer, so the bound uses the measured hold.
    let queue = f64::from(work.waiters());
    let of_queue = |sample: &Sample| sample.found.wait_p99_us / (queue * sample.found.hold_mean_us);
    outcome.targets.extend([
        Target::at_most("wait p99 / (waiters × hold), hold 1 ms", race.median(OURS, of_queue), 1.2),
        Target::at_least("rate, us / local tokio Mutex, hold 1 ms", race.ratio(OURS, LOCAL, rate), 0.97),
        Target::at_least("share of the poorest process, hold 1 ms", race.median(OURS, share), 0.95),
    ]);
    outcome.add("hold 1 ms", race);
    Ok(outcome)
}

/// Each process has a single task, so every hand-off goes to another process.
pub(super) fn remote(bench: &mut Bench) -> Result<Outcome> {
    let proxy = bench.proxy()?;
    let (port, round_trip) = (proxy.port, proxy.round_trip.as_secs_f64());
    let (mut outcome, work) = (Outcome::default(), Work::hot(4, 1));
    let race = Race::run(bench, &contestants(work, port))?;
    let per_trip = race.median(OURS, |sample| changes(sample) * round_trip);
    let per_acquisition = race.median(OURS, |sample| sample.found.changes_per_acquisition);
    outcome.targets.extend([
        Target::at_least("hand-offs per round trip", per_trip, 0.95),
        Target::at_least("owner changes per acquisition", per_acquisition, 0.95),
    ]);
    outcome.figures.push(Figure::new("round trip, measured with PING", "ms", vec![round_trip * 1e3]));
    outcome.add("", race);
    commands(bench, &mut outcome, ours(work, port), 2.0)?;
    Ok(outcome)
}

/// Counts the commands of this library.
fn commands(bench: &mut Bench, outcome: &mut Outcome, line: Line, reach: f64) -> Result<()> {
    let pace = bench.pace;
    let count = count_commands(bench.server(), line.port, line.kind, line.work, pace)?;
    let figure = Figure::new("commands per acquisition, us", "", vec![count]);
    outcome.targets.push(Target::at_most("commands per acquisition", figure.median, reach));
    outcome.figures.push(figure);
    Ok(())
}

fn contestants(work: Work, port: u16) -> Vec<Line> {
    let line = |name, kind| Line { name, kind, ..ours(work, port) };
    vec![
        line(RAW, PLAIN),
        line(RSLOCK, Kind::Rslock { retry_ms: None }),
        line(TUNED, Kind::Rslock { retry_ms: Some(TUNED_RETRY_MS) }),
        line(DISTKIT, MUTEX),
        line(OURS, US),
    ]
}

fn ours(work: Work, port: u16) -> Line {
    Line { name: OURS, kind: US, work, port, site: 0 }
}

/// A peer whose owner never changed in a short window counts as one change per second.
fn changes_or_one(sample: &Sample) -> f64 {
    changes(sample).max(1.0)
}
