//! All tasks want the same key.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::fleet::Sample;
use crate::outcome::{Figure, Outcome, safety};
use crate::race::{LOCAL, Line, OURS, RAW, RSLOCK, Race, TUNED};
use crate::target::Target;
use crate::work::{Pace, Work};

/// The retry that serves rslock best on a hot key, ms.
const TUNED_RETRY_MS: u64 = 2;

pub(super) fn process_ct(bench: &mut Bench) -> Result<Outcome> {
    one_process(bench, Work::hot(1, 64), 500_000.0)
}

pub(super) fn process_mt(bench: &mut Bench) -> Result<Outcome> {
    one_process(bench, Work::hot(1, 64).multi_thread(), 350_000.0)
}

fn one_process(bench: &mut Bench, work: Work, changes_per_second: f64) -> Result<Outcome> {
    let mut lines = contestants(work, bench.server.port());
    lines.push(Line { name: LOCAL, kind: Kind::Local, work, port: bench.server.port() });
    let race = Race::run(bench, &lines)?;
    let mut targets = vec![
        Target::at_least("owner changes per second, us", race.median(OURS, changes), changes_per_second),
        Target::at_least("owner changes, us / rslock", race.ratio(OURS, RSLOCK, changes_or_one), 1000.0),
        Target::at_least("owner changes, us / rslock tuned", race.ratio(OURS, TUNED, changes_or_one), 100.0),
        Target::at_most("commands per acquisition", race.median(OURS, commands), 0.02),
    ];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

pub(super) fn fleet(bench: &mut Bench) -> Result<Outcome> {
    let lines = contestants(Work::hot(4, 16), bench.server.port());
    let race = Race::run(bench, &lines)?;
    let mut targets = vec![
        Target::at_least("owner changes, us / rslock", race.ratio(OURS, RSLOCK, changes_or_one), 500.0),
        Target::at_least("share of the poorest process", race.median(OURS, share), 0.95),
    ];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

pub(super) fn fleet_hold(bench: &mut Bench) -> Result<Outcome> {
    let (work, port) = (Work::hot(4, 16).holding(1000), bench.server.port());
    let mut lines = contestants(work, port);
    // As many tasks in one process: no lock could be faster.
    let bound = Work::hot(1, work.waiters()).holding(work.hold_us);
    lines.push(Line { name: LOCAL, kind: Kind::Local, work: bound, port });
    // Long enough for every waiter to have had its turn a few times.
    let factor = bench.scale.pick(2, 3, 1);
    let pace = Pace { warm_up: bench.pace.warm_up, window: bench.pace.window * factor };
    let race = Race::run_at(bench, &lines, pace)?;
    // A sleep of 1 ms takes longer, so the bound is computed from how long the lock was actually
    // held.
    let queue = f64::from(work.waiters());
    let of_queue = |sample: &Sample| sample.found.wait_p99_us / (queue * sample.found.hold_mean_us);
    let mut targets = vec![
        Target::at_most("wait p99 / (waiters × hold)", race.median(OURS, of_queue), 1.2),
        Target::at_least("rate, us / local tokio Mutex", race.ratio(OURS, LOCAL, |sample| sample.found.rate), 0.97),
        Target::at_least("share of the poorest process", race.median(OURS, share), 0.95),
    ];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

pub(super) fn remote(bench: &mut Bench) -> Result<Outcome> {
    let (port, round_trip) = {
        let proxy = bench.proxy()?;
        (proxy.port, proxy.round_trip.as_secs_f64())
    };
    let race = Race::run(bench, &contestants(Work::hot(4, 1), port))?;
    let per_trip = race.median(OURS, |sample| changes(sample) * round_trip);
    let mut targets = vec![Target::at_least("hand-offs per round trip", per_trip, 0.95)];
    targets.extend(strict(&race));
    let figures = vec![Figure::new("round trip, measured with PING", "ms", vec![round_trip * 1e3])];
    Ok(Outcome { race, figures, targets })
}

pub(super) fn remote_hold(bench: &mut Bench) -> Result<Outcome> {
    let lines = contestants(Work::hot(4, 1).holding(1000), bench.server.port());
    let race = Race::run(bench, &lines)?;
    let targets = strict(&race);
    Ok(Outcome { race, targets, ..Outcome::default() })
}

/// The targets where each process has a single task, so that no hand-off is local.
fn strict(race: &Race) -> Vec<Target> {
    let mut targets = vec![
        Target::at_least(
            "owner changes per acquisition",
            race.median(OURS, |sample| sample.found.changes_per_acquisition),
            0.95,
        ),
        Target::at_most("commands per acquisition", race.median(OURS, commands), 2.0),
    ];
    targets.extend(safety(race));
    targets
}

fn contestants(work: Work, port: u16) -> Vec<Line> {
    let line = |name, kind| Line { name, kind, work, port };
    vec![
        line(RAW, Kind::Raw { nodelay: false }),
        line(RSLOCK, Kind::Rslock { retry_ms: None }),
        line(TUNED, Kind::Rslock { retry_ms: Some(TUNED_RETRY_MS) }),
        line(OURS, Kind::Ours { background: false }),
    ]
}

fn changes(sample: &Sample) -> f64 {
    sample.found.changes_per_second
}

/// A peer whose owner never changed in a short window counts as one change per second.
fn changes_or_one(sample: &Sample) -> f64 {
    changes(sample).max(1.0)
}

fn commands(sample: &Sample) -> f64 {
    sample.commands_per_acquisition.unwrap_or(f64::NAN)
}

fn share(sample: &Sample) -> f64 {
    sample.found.process_share.unwrap_or(f64::NAN)
}
