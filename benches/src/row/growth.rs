//! Whether an acquisition still costs the same with more keys and more waiters.

use std::time::Duration;

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::fleet::{self, Sample};
use crate::outcome::{Outcome, safety};
use crate::race::{LOCAL, Lane, Line, OURS, Race};
use crate::server::Server;
use crate::spy::Seen;
use crate::stats::median;
use crate::target::Target;
use crate::work::{Pace, Work};

const OURS_MANY: &str = "us, many";
const LOCAL_MANY: &str = "tokio Mutex, many";
const RAW_FEW: &str = "raw";
const RAW_MANY: &str = "raw, many";
/// How long filling a server with keys may take.
const FILL_WITHIN: Duration = Duration::from_secs(120);

/// A line of the row: its name, whether it has many keys, and its contestant.
const LINES: [(&str, bool, Kind); 4] = [
    (RAW_FEW, false, Kind::Raw { nodelay: false }),
    (RAW_MANY, true, Kind::Raw { nodelay: false }),
    (OURS, false, Kind::Ours { background: false }),
    (OURS_MANY, true, Kind::Ours { background: false }),
];

/// 1,000 keys and 1,000,000. Locks that were released leave nothing in the server.
pub(super) fn keys(bench: &mut Bench) -> Result<Outcome> {
    const TASKS: u32 = 64;
    let (few, many) = (1024 / TASKS, bench.scale.pick(1 << 20, 1 << 16, 1 << 12) / TASKS);
    let over = |keys_per_task| Work { keys_per_task, ..Work::distinct(TASKS) };

    // Each line and size has its own server, so that one does not affect another.
    let mut lanes = Vec::new();
    for (name, is_many, kind) in LINES {
        let mut server = Server::start(&bench.program)?;
        let work = over(if is_many { many } else { few });
        fill(&mut server, kind, work)?;
        lanes.push((server, kind, work, Lane::new(name)));
    }
    for round in 0..bench.rounds {
        let start = usize::try_from(round)? % lanes.len();
        for place in 0..lanes.len() {
            let index = (start + place) % LINES.len();
            let (server, kind, work, lane) = &mut lanes[index];
            let port = server.port();
            lane.rounds.push(fleet::run(std::slice::from_mut(server), port, *kind, *work, bench.pace, &mut lane.seen)?);
        }
    }
    let race = Race { shared_key: false, lanes: lanes.into_iter().map(|(.., lane)| lane).collect() };
    let what = format!("processor time per acquisition, {} keys / {} keys", many * TASKS, few * TASKS);
    let mut targets = vec![Target::at_most(what, race.ratio(OURS_MANY, OURS, Sample::cost_us), 1.2)];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}

/// Locks every key once.
fn fill(server: &mut Server, kind: Kind, work: Work) -> Result<()> {
    let tasks = 1024;
    let keys_per_task = (work.tasks * work.keys_per_task).div_ceil(tasks);
    let filling = Work { tasks, keys_per_task, times: Some(u64::from(keys_per_task)), ..work };
    let pace = Pace { warm_up: Duration::ZERO, window: FILL_WITHIN };
    let port = server.port();
    fleet::run(std::slice::from_mut(server), port, kind, filling, pace, &mut Some(Seen::default()))?;
    Ok(())
}

/// 10 tasks and 10,000. So many tasks do not fit into a processor's caches, whatever they wait for: a
/// mutex of this process shows what that costs.
pub(super) fn waiters(bench: &mut Bench) -> Result<Outcome> {
    let (few, many) = (10, bench.scale.pick(10_000, 10_000, 500));
    let (port, ours) = (bench.server.port(), Kind::Ours { background: false });
    let line = |name, kind, tasks| Line { name, kind, work: Work::hot(1, tasks), port };
    let lines = [
        line(OURS, ours, few),
        line(OURS_MANY, ours, many),
        line(LOCAL, Kind::Local, few),
        line(LOCAL_MANY, Kind::Local, many),
    ];
    let race = Race::run(bench, &lines)?;
    let what = format!("processor time per acquisition, {many} waiters / {few} waiters");
    let cost = |line: usize| race.lanes[line].rounds.iter().map(Sample::cost_us);
    let above = |line: usize| cost(line).zip(cost(line + 2)).map(|(ours, bound)| ours - bound);
    let growth = median(above(1).zip(above(0)).map(|(many, few)| many / few).collect());
    let mut targets = vec![
        Target::at_most(&what, race.ratio(OURS_MANY, OURS, Sample::cost_us), 1.2),
        Target::at_most("the same, of what is above the mutex", growth, 1.2),
    ];
    targets.extend(safety(&race));
    Ok(Outcome { race, targets, ..Outcome::default() })
}
