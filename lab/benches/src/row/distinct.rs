//! No contention: the cost of a free lock.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::outcome::{Outcome, Target};
use crate::process::instructions::Instructions;
use crate::process::work::Work;
use crate::race::{BACKGROUND, DISTKIT, Line, NODELAY, OURS, RAW, RSLOCK, Race};
use crate::row::{MUTEX, PLAIN, US, rate};

pub(super) fn idle(bench: &mut Bench) -> Result<Outcome> {
    let (mut outcome, work) = (Outcome::default(), Work::distinct(1));
    for (threads, work) in [("current-thread", work), ("multi-thread", work.multi_thread())] {
        let mut lines = quartet(work, bench.port());
        lines.push(Line { name: BACKGROUND, kind: Kind::Ours { background: true }, ..lines[0] });
        let mut race = Race::run(bench, &lines)?;
        outcome.targets.extend([
            Target::at_least(format!("rate, us / raw, {threads}"), race.ratio(OURS, RAW, rate), 0.85),
            Target::at_least(format!("rate, background / raw, {threads}"), race.ratio(BACKGROUND, RAW, rate), 1.0),
        ]);
        if !work.multi_thread {
            race.count_instructions(bench, &lines)?;
        }
        outcome.add(threads, race);
    }
    Ok(outcome)
}

pub(super) fn many(bench: &mut Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (few, crowd) = (Work::distinct(64), Work::distinct(1024).multi_thread());
    for (about, work, of_peer) in [
        ("64 tasks, current-thread", few, 1.3),
        ("64 tasks, multi-thread", few.multi_thread(), 1.3),
        ("1,024 tasks, multi-thread", crowd, 1.5),
    ] {
        let lines = quartet(work, bench.port());
        let mut race = Race::run(bench, &lines)?;
        outcome.targets.extend([
            Target::at_least(format!("rate, us / raw, {about}"), race.ratio(OURS, RAW, rate), 1.0),
            Target::at_least(format!("rate, us / rslock, {about}"), race.ratio(OURS, RSLOCK, rate), of_peer),
            Target::at_least(format!("rate, us / distkit, {about}"), race.ratio(OURS, DISTKIT, rate), of_peer),
        ]);
        if bench.counter.is_some() && !work.multi_thread {
            race.count_instructions(bench, &lines)?;
            let of = |count: fn(Instructions) -> f64| race.instructions(OURS, RAW, count);
            outcome.targets.extend([
                Target::at_most("client instructions, us / raw", of(|count| count.client), 1.35),
                Target::at_most("server instructions, us / raw", of(|count| count.server), 0.75),
            ]);
        }
        outcome.add(about, race);
    }
    let (work, port) = (few.multi_thread(), bench.proxy()?.port);
    let mut lines = quartet(work, port);
    lines.push(Line { name: NODELAY, kind: Kind::Raw { nodelay: true }, ..lines[0] });
    let race = Race::run(bench, &lines)?;
    let wait = race.ratio(OURS, RSLOCK, |sample| sample.found.wait_p50_us);
    outcome.targets.extend([
        Target::at_least("rate, us / rslock, round trip of 5 ms", race.ratio(OURS, RSLOCK, rate), 1.8),
        Target::at_most("wait p50, us / rslock, round trip of 5 ms", wait, 0.55),
    ]);
    outcome.add("64 tasks, multi-thread, a round trip of 5 ms or more", race);
    Ok(outcome)
}

/// Raw, rslock, distkit and this library. Without contention no retry happens.
fn quartet(work: Work, port: u16) -> Vec<Line> {
    let line = |name, kind| Line { name, kind, work, port, site: 0 };
    vec![line(RAW, PLAIN), line(RSLOCK, Kind::Rslock { retry_ms: None }), line(DISTKIT, MUTEX), line(OURS, US)]
}
