//! Whether the cost of an acquisition grows with the number of keys and waiters.

use std::time::Duration;

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::outcome::{Outcome, Target};
use crate::process::fleet::{self, Sample};
use crate::process::work::{Pace, Work};
use crate::race::{LOCAL, Line, OURS, Race};
use crate::row::US;
use crate::servers::site::{Empty, Site};
use crate::stats::median;

const OURS_MANY: &str = "us, many";
const LOCAL_MANY: &str = "tokio Mutex, many";
/// How long filling a server with keys may take.
const FILL_WITHIN: Duration = Duration::from_secs(120);

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    keys(bench, &mut outcome)?;
    waiters(bench, &mut outcome)?;
    Ok(outcome)
}

/// 1,000 keys and 1,000,000 on a server each, all of them locked once before. A released lock leaves nothing on its server.
fn keys(bench: &Bench, outcome: &mut Outcome) -> Result<()> {
    const TASKS: u32 = 64;
    let (few, many) = (1024 / TASKS, bench.scale.pick(1 << 20, 1 << 16, 1 << 12) / TASKS);
    let (mut sites, mut lines) = (Vec::new(), Vec::new());
    for (name, keys_per_task) in [(OURS, few), (OURS_MANY, many)] {
        let mut site = Site::alone(&bench.program)?;
        site.before_a_run = Empty::Nothing;
        let work = Work { keys_per_task, ..Work::distinct(TASKS) };
        fill(&mut site, work)?;
        lines.push(Line { name, kind: US, work, port: site.port(), site: sites.len() });
        sites.push(site);
    }
    let race = Race::among(bench.rounds, bench.pace, &mut sites, &lines)?;
    let what = format!("processor time per acquisition, {} keys / {} keys", many * TASKS, few * TASKS);
    outcome.targets.push(Target::at_most(what, race.ratio(OURS_MANY, OURS, Sample::cost_us), 1.2));
    outcome.add("64 tasks, distinct keys", race);
    Ok(())
}

/// Locks every key once.
fn fill(site: &mut Site, work: Work) -> Result<()> {
    let tasks = 1024;
    let keys_per_task = (work.tasks * work.keys_per_task).div_ceil(tasks);
    let filling = Work { tasks, keys_per_task, times: Some(u64::from(keys_per_task)), ..work };
    let port = site.port();
    fleet::run(&mut site.servers, port, US, filling, Pace { warm_up: Duration::ZERO, window: FILL_WITHIN })?;
    Ok(())
}

/// 10 tasks and 10,000. That many tasks exceed the caches of a processor, whatever they wait for. A mutex in this
/// process shows the cost of that alone.
fn waiters(bench: &mut Bench, outcome: &mut Outcome) -> Result<()> {
    let (few, many, port) = (10, bench.scale.pick(10_000, 10_000, 500), bench.port());
    let line = |name, kind, tasks| Line { name, kind, work: Work::hot(1, tasks), port, site: 0 };
    let lines = [
        line(OURS, US, few),
        line(OURS_MANY, US, many),
        line(LOCAL, Kind::Local, few),
        line(LOCAL_MANY, Kind::Local, many),
    ];
    let race = Race::run(bench, &lines)?;
    let what = format!("processor time per acquisition, {many} waiters / {few} waiters");
    let cost = |line: usize| race.lanes[line].rounds.iter().map(Sample::cost_us);
    let above = |line: usize| cost(line).zip(cost(line + 2)).map(|(ours, bound)| ours - bound);
    let growth = median(above(1).zip(above(0)).map(|(many, few)| many / few).collect());
    outcome.targets.extend([
        Target::at_most(what, race.ratio(OURS_MANY, OURS, Sample::cost_us), 1.2),
        Target::at_most("the same, of what is above the mutex", growth, 1.2),
    ]);
    outcome.add("one hot key, hold 0", race);
    Ok(())
}
