//! Readers, permits and segments, beside one exclusive lock.

use crate::Result;
use crate::bench::Bench;
use crate::contestant::{Kind, Wants};
use crate::outcome::{Figure, Outcome, Target};
use crate::process::fleet::Sample;
use crate::process::work::Work;
use crate::race::{Line, OURS, Race};
use crate::row::{US, rate, share};

const READERS: &str = "us, 95 % reads";
const THEIRS: &str = "distkit, 95 % reads";
/// All tasks of a process share one `RwLock` of distkit.
const ONE_OWNER: &str = "distkit, one a process";
const PERMITS: &str = "us, 16 permits";
const SEGMENTS: &str = "us, any of 16 segments";
/// The number of permits and of segments.
const PARTS: u32 = 16;

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let (work, port) = (Work::hot(4, 16).holding(1000), bench.port());
    let line = |name, wants| Line { name, kind: US, work: work.wanting(wants), port, site: 0 };
    let theirs = |name, owners| Line { kind: Kind::Distkit { reads: true, owners }, ..line(name, Wants::Reads(95)) };
    let lines = [
        line(OURS, Wants::Alone),
        line(READERS, Wants::Reads(95)),
        theirs(THEIRS, work.tasks),
        theirs(ONE_OWNER, 1),
        line(PERMITS, Wants::Permits(PARTS)),
        line(SEGMENTS, Wants::Segments(PARTS)),
    ];
    let pace = bench.long();
    let race = Race::among(bench.rounds, pace, std::slice::from_mut(&mut bench.site), &lines)?;
    let of_bound = |sample: &Sample| sample.found.writer_wait_p99.unwrap_or(f64::NAN);
    let in_use = |sample: &Sample| sample.found.rate * sample.found.hold_mean_us / 1e6 / f64::from(PARTS);
    let mut outcome = Outcome::default();
    for name in [READERS, THEIRS, ONE_OWNER] {
        let overlaps = |sample: &Sample| sample.found.violations as f64;
        outcome.figures.push(Figure::new(format!("overlaps: {name}"), "", race.rounds(name, overlaps)));
    }
    outcome.targets.extend([
        Target::at_least("rate, us / distkit, 95 % reads", race.ratio(READERS, THEIRS, rate), 1.0),
        Target::at_least("rate, 95 % reads / one lock", race.ratio(READERS, OURS, rate), 8.0),
        Target::at_most("wait of writers, p99 / (2 × queue × hold + 3 trips)", race.median(READERS, of_bound), 1.0),
        Target::at_least("rate / (permits ÷ hold)", race.median(PERMITS, in_use), 0.8),
        Target::at_least("permits: share of the poorest process", race.median(PERMITS, share), 0.9),
        Target::at_least("rate, 16 segments / one lock", race.ratio(SEGMENTS, OURS, rate), 12.0),
    ]);
    outcome.add("", race);
    Ok(outcome)
}
