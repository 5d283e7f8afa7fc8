//! One key that many managers compete for, each with connections of its own as a process has. Also measures how soon
//! all are served after the server was away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::LockManager;
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::fleet::Sample;
use crate::process::job::{Job, Recover};
use crate::process::wire::{Go, hear, say};
use crate::process::work::{Pace, Work};
use crate::process::worker;
use crate::race::{Line, Race};
use crate::row::{US, changes, crowd, share};
use crate::servers::keeper::{Formation, Keeper, Order};
use crate::{Result, clock};

/// A number of managers, and their targets.
struct Fleet {
    name: &'static str,
    managers: u32,
    /// Turns of the manager with the fewest, divided by those of the manager with the most.
    share: f64,
    /// How soon all managers have been served after the server is back, s.
    served_after: f64,
}

const FULL: [Fleet; 3] = [
    Fleet { name: "us, 10 managers", managers: 10, share: 0.95, served_after: 1.0 },
    Fleet { name: "us, 100 managers", managers: 100, share: 0.95, served_after: 1.0 },
    Fleet { name: "us, 1,000 managers", managers: 1_000, share: 0.86, served_after: 2.0 },
];
const SMOKE: [Fleet; 1] = [Fleet { name: "us, 3 managers", managers: 3, share: 0.95, served_after: 1.0 }];

/// The key of all managers when the server goes away.
const KEY: &str = "bench:fleet";
/// How long to wait for managers that are not served.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let fleets = bench.scale.pick(&FULL[..], &FULL[..2], &SMOKE[..]);
    let (port, rounds) = (bench.port(), bench.scale.pick(bench.rounds.min(2), 1, 1));
    let millis = Duration::from_millis;
    let pace = Pace {
        warm_up: bench.scale.pick(millis(1_500), millis(300), bench.pace.warm_up),
        window: bench.scale.pick(millis(6_000), millis(1_000), bench.pace.window),
    };
    let work = |managers| Work::hot(1, managers).multi_thread().apart();
    let line = |fleet: &Fleet| Line { name: fleet.name, kind: US, work: work(fleet.managers), port, site: 0 };
    let lines: Vec<Line> = fleets.iter().map(line).collect();
    let race = Race::among(rounds, pace, std::slice::from_mut(&mut bench.site), &lines)?;

    let mut outcome = Outcome::default();
    let scripts = |sample: &Sample| sample.scripts_us.unwrap_or(f64::NAN);
    for (place, Fleet { name, managers: who, share: least, .. }) in fleets.iter().enumerate() {
        if place == 0 {
            let (rate, cost) = (race.median(name, changes), race.median(name, scripts));
            outcome.targets.push(Target::at_least(format!("owner changes per second, {who} managers"), rate, 7_000.0));
            outcome.targets.push(Target::at_most(format!("µs of scripts per change, {who} managers"), cost, 45.0));
        }
        let of_queue = |sample: &Sample| sample.found.wait_p99_us / 1e6 * changes(sample) / f64::from(*who);
        let (poorest, waited) = (race.median(name, share), race.median(name, of_queue));
        outcome.targets.push(Target::at_least(format!("share of the poorest of {who} managers"), poorest, *least));
        outcome.targets.push(Target::at_most(format!("wait p99 × changes / {who} managers"), waited, 1.2));
    }
    for fleet in fleets {
        bench.progress(&format!("the server goes away from {} managers", fleet.managers));
        let recovered = recovery(bench, fleet.managers)?;
        let what = format!("{} managers: all served after", fleet.managers);
        let seconds = Duration::from_nanos(recovered.served_after).as_secs_f64();
        outcome.targets.push(Target::at_most(format!("{what}, s"), Some(seconds), fleet.served_after));
        outcome.figures.push(Figure::new(what, "s", vec![seconds]));
        *outcome.faults.entry("managers that were not served again").or_default() += recovered.missing;
        *outcome.faults.entry("errors while the server was away").or_default() += recovered.errors;
    }
    outcome.add("", race);
    Ok(outcome)
}

/// Takes the server away from a fleet for a while. The server comes back empty.
fn recovery(bench: &Bench, managers: u32) -> Result<Recovered> {
    let millis = |full, quick, smoke| Duration::from_millis(bench.scale.pick(full, quick, smoke));
    let (mut keeper, running) = Keeper::start(&bench.program, Formation::Alone)?;
    let port = running.first().ok_or("no server could be started, see above")?.port;
    let mut worker = worker::start(&Job::Recover(Recover { port, managers }))?;
    worker.wait_ready()?;
    std::thread::sleep(millis(1_000, 300, 50));
    keeper.tell(Order::Kill)?;
    let from = clock::now();
    std::thread::sleep(millis(3_000, 1_000, 50));
    keeper.tell(Order::Restart)?;
    worker.tell(&Go { from, to: clock::now() })?;
    worker.answer()
}

/// How a fleet recovered after the server was away.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Recovered {
    /// The time from the server's first answer until every manager had had a turn, ns.
    served_after: u64,
    /// How many managers had no turn.
    missing: u64,
    errors: u64,
}

/// Takes the lock again and again in a process of its own. Ends when every manager was served after the server was away.
pub(crate) fn recover(job: &Recover) -> Result<()> {
    let runtime = crowd::runtime()?;
    let managers = runtime.block_on(crowd::connect(job.port, job.managers))?;
    let errors = Arc::new(AtomicU64::new(0));
    let mut turns = Vec::new();
    for locks in managers {
        let entered = Arc::new(Mutex::new(Vec::new()));
        runtime.spawn(take_turns(locks, Arc::clone(&entered), Arc::clone(&errors)));
        turns.push(entered);
    }
    say("ready")?;
    let go: Go = hear()?;
    let served = |entered: &Arc<Mutex<Vec<u64>>>| {
        let entered = entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.iter().copied().find(|at| *at > go.from)
    };
    let give_up_at = go.to + clock::as_nanos(PATIENCE);
    while clock::now() < give_up_at && turns.iter().any(|entered| served(entered).is_none()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let first: Vec<Option<u64>> = turns.iter().map(served).collect();
    let last = first.iter().flatten().max().copied().unwrap_or(go.to);
    let recovered = Recovered {
        served_after: last.saturating_sub(go.to),
        missing: u64::try_from(first.iter().filter(|first| first.is_none()).count())?,
        errors: errors.load(Ordering::Relaxed),
    };
    say(&serde_json::to_string(&recovered)?)?;
    std::process::exit(0)
}

/// Takes and releases the lock, and notes the time of each acquire. A release may find the lock gone, because the
/// server forgot it.
async fn take_turns(locks: LockManager, entered: Arc<Mutex<Vec<u64>>>, errors: Arc<AtomicU64>) {
    loop {
        match locks.lock(KEY).await {
            Ok(guard) => {
                entered.lock().unwrap_or_else(PoisonError::into_inner).push(clock::now());
                let _ = guard.release().await;
            }
            Err(_) => {
                errors.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
