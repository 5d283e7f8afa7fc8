//! No contention: what the lock costs when it is free.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::fleet::Sample;
use crate::instructions::Instructions;
use crate::outcome::{Outcome, safety};
use crate::race::{Line, OURS, RAW, RSLOCK, Race};
use crate::target::Target;
use crate::work::Work;

const BACKGROUND: &str = "us, background release";
const NODELAY: &str = "raw, TCP_NODELAY";

const PLAIN: Kind = Kind::Raw { nodelay: false };
const PEER: Kind = Kind::Rslock { retry_ms: None };
const US: Kind = Kind::Ours { background: false };

pub(super) fn idle(bench: &mut Bench) -> Result<Outcome> {
    one_task(bench, Work::distinct(1))
}

pub(super) fn idle_mt(bench: &mut Bench) -> Result<Outcome> {
    one_task(bench, Work::distinct(1).multi_thread())
}

fn one_task(bench: &mut Bench, work: Work) -> Result<Outcome> {
    let mut lines = trio(work, bench.server.port());
    lines.push(Line { name: BACKGROUND, kind: Kind::Ours { background: true }, work, port: bench.server.port() });
    let mut race = Race::run(bench, &lines)?;
    let mut targets = vec![
        Target::at_least("rate, us / raw", race.ratio(OURS, RAW, rate), 0.85),
        Target::at_least("rate, background release / raw", race.ratio(BACKGROUND, RAW, rate), 1.0),
    ];
    if !work.multi_thread {
        race.count_instructions(bench, &lines)?;
    }
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

pub(super) fn many_ct(bench: &mut Bench) -> Result<Outcome> {
    throughput(bench, Work::distinct(64), 1.0, 1.3)
}

pub(super) fn many_mt(bench: &mut Bench) -> Result<Outcome> {
    throughput(bench, Work::distinct(64).multi_thread(), 1.0, 1.3)
}

pub(super) fn crowd(bench: &mut Bench) -> Result<Outcome> {
    throughput(bench, Work::distinct(1024).multi_thread(), 1.0, 1.5)
}

fn throughput(bench: &mut Bench, work: Work, of_raw: f64, of_peer: f64) -> Result<Outcome> {
    let lines = trio(work, bench.server.port());
    let mut race = Race::run(bench, &lines)?;
    let commands = race.median(OURS, |sample| sample.commands_per_acquisition.unwrap_or(f64::NAN));
    let mut targets = vec![
        Target::at_least("rate, us / raw", race.ratio(OURS, RAW, rate), of_raw),
        Target::at_least("rate, us / rslock", race.ratio(OURS, RSLOCK, rate), of_peer),
        Target::at_most("commands per acquire and release", commands, 1.3),
    ];
    if bench.counter.is_some() && !work.multi_thread {
        race.count_instructions(bench, &lines)?;
        let of = |count: fn(Instructions) -> f64| race.instructions(OURS, RAW, count);
        targets.push(Target::at_most("client instructions, us / raw", of(|count| count.client), 1.35));
        targets.push(Target::at_most("server instructions, us / raw", of(|count| count.server), 0.75));
    }
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

pub(super) fn network(bench: &mut Bench) -> Result<Outcome> {
    let (work, port) = (Work::distinct(64).multi_thread(), bench.proxy()?.port);
    let mut lines = trio(work, port);
    lines.push(Line { name: NODELAY, kind: Kind::Raw { nodelay: true }, work, port });
    let race = Race::run(bench, &lines)?;
    let mut targets = vec![
        Target::at_least("rate, us / rslock", race.ratio(OURS, RSLOCK, rate), 1.8),
        Target::at_most("wait p50, us / rslock", race.ratio(OURS, RSLOCK, |sample| sample.found.wait_p50_us), 0.55),
    ];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

/// Raw, the peer, and us. The peer's retry makes no difference without contention.
fn trio(work: Work, port: u16) -> Vec<Line> {
    let line = |name, kind| Line { name, kind, work, port };
    vec![line(RAW, PLAIN), line(RSLOCK, PEER), line(OURS, US)]
}

fn rate(sample: &Sample) -> f64 {
    sample.found.rate
}
