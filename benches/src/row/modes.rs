//! Readers, permits and segments.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::{Kind, Wants};
use crate::fleet::Sample;
use crate::outcome::{Outcome, safety};
use crate::race::{Line, OURS, Race};
use crate::target::Target;
use crate::work::{Pace, Work};

const EXCLUSIVE: &str = "us, exclusive";
const POLLED: &str = "polled";

const PERMITS: u32 = 16;
const SEGMENTS: u32 = 16;

pub(super) fn local_readers(bench: &mut Bench) -> Result<Outcome> {
    let work = Work::hot(1, 64);
    let pace = bench.pace;
    let race = beside_exclusive(bench, work, Wants::Reads(100), pace)?;
    let commands = race.median(OURS, |sample| sample.commands_per_acquisition.unwrap_or(f64::NAN));
    let targets = vec![
        Target::at_least("rate, readers / exclusive", race.ratio(OURS, EXCLUSIVE, rate), 1.0),
        Target::at_most("commands per acquisition", commands, 0.02),
    ];
    Ok(with_safety(race, targets))
}

pub(super) fn readers(bench: &mut Bench) -> Result<Outcome> {
    let pace = long(bench);
    let race = beside_exclusive(bench, Work::hot(4, 16).holding(1000), Wants::Reads(95), pace)?;
    let of_bound = race.median(OURS, |sample| sample.found.writer_wait_p99.unwrap_or(f64::NAN));
    let targets = vec![
        Target::at_least("rate, 95 % reads / exclusive", race.ratio(OURS, EXCLUSIVE, rate), 8.0),
        Target::at_most("wait of writers, p99 / (2 × queue × hold + 3 trips)", of_bound, 1.0),
    ];
    Ok(with_safety(race, targets))
}

pub(super) fn permits(bench: &mut Bench) -> Result<Outcome> {
    let work = Work::hot(4, 16).holding(1000).wanting(Wants::Permits(PERMITS));
    let line = |name, kind| Line { name, kind, work, port: bench.server.port() };
    let lines = [line(OURS, Kind::Ours { background: false }), line(POLLED, Kind::Polled)];
    let pace = long(bench);
    let race = Race::run_at(bench, &lines, pace)?;
    let in_use = |sample: &Sample| sample.found.rate * sample.found.hold_mean_us / 1e6 / f64::from(PERMITS);
    let share = |sample: &Sample| sample.found.process_share.unwrap_or(f64::NAN);
    let targets = vec![
        Target::at_least("rate / (permits ÷ hold)", race.median(OURS, in_use), 0.8),
        Target::at_least("share of the poorest process", race.median(OURS, share), 0.9),
        Target::at_least("rate of those that waited, us / polled", race.ratio(OURS, POLLED, waited), 20.0),
    ];
    Ok(with_safety(race, targets))
}

pub(super) fn segments(bench: &mut Bench) -> Result<Outcome> {
    let pace = long(bench);
    let race = beside_exclusive(bench, Work::hot(4, 16).holding(1000), Wants::Segments(SEGMENTS), pace)?;
    let targets = vec![Target::at_least("rate, 16 segments / one lock", race.ratio(OURS, EXCLUSIVE, rate), 12.0)];
    Ok(with_safety(race, targets))
}

/// Runs the same tasks with what they want, and with one lock for all.
fn beside_exclusive(bench: &mut Bench, work: Work, wants: Wants, pace: Pace) -> Result<Race> {
    let (kind, port) = (Kind::Ours { background: false }, bench.server.port());
    let lines =
        [Line { name: OURS, kind, work: work.wanting(wants), port }, Line { name: EXCLUSIVE, kind, work, port }];
    Race::run_at(bench, &lines, pace)
}

/// Windows in which every waiter of one lock has its turn a few times.
fn long(bench: &Bench) -> Pace {
    Pace { warm_up: bench.pace.warm_up, window: bench.pace.window * bench.scale.pick(2, 3, 1) }
}

fn with_safety(race: Race, mut targets: Vec<Target>) -> Outcome {
    targets.extend(safety(&race));
    Outcome { race, targets, ..Outcome::default() }
}

/// A peer whose waiters never got in within a short window counts as one a second.
fn waited(sample: &Sample) -> f64 {
    sample.found.waited_rate.max(1.0)
}

fn rate(sample: &Sample) -> f64 {
    sample.found.rate
}
