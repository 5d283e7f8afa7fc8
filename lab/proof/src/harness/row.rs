//! One row: lets faults strike processes and servers, and writes down what happens.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::check;
use crate::harness::fault::{Fault, Menu};
use crate::harness::fleet::{Fleet, Workload};
use crate::harness::plan::Plan;
use crate::harness::refusal::assert_answers;
use crate::harness::resource::Resource;
use crate::harness::servers::Topology;
use crate::harness::world::World;
use crate::harness::{LONGEST_LEASE, left};
use crate::record::{Expect, Record, Recorder, now};

/// How long an assumption may stay broken before its effect must show.
const MOST: Duration = Duration::from_secs(60);

/// The parts of a row.
pub(crate) struct Setting {
    pub(crate) workload: Workload,
    pub(crate) menu: Menu,
    pub(crate) servers: Box<dyn Topology>,
    /// Whether the resource checks tokens.
    pub(crate) checks: bool,
    pub(crate) expect: Expect,
    pub(crate) seed: u64,
}

/// When no more faults begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// After this many steps, as many as an earlier run had.
    Steps(usize),
}

/// The outcome of a row, beside its history.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) steps: usize,
    /// The longest time from the end of the faults until every process had locks again.
    pub(crate) recovery: Option<Duration>,
    pub(crate) tally: BTreeMap<String, u64>,
}

/// Runs a row. Appends to its history, which has begun in a file.
pub(crate) async fn run(setting: Setting, history: &Path, until: Until) -> Result<Outcome, String> {
    let mut random = fastrand::Rng::with_seed(setting.seed);
    let resource = Resource::start(history, setting.checks);
    let (servers, processes) = (setting.servers, setting.workload.processes());
    let plan = Plan::new(setting.menu, random.fork(), processes);
    let fleet = Fleet::start(setting.workload, &*servers, history, &resource, random).await;
    let excuses = setting.expect == Expect::Nothing;
    let recorder = Recorder::append_to(history);
    let mut world = World { servers, fleet, recorder, excuses };
    let start = world.served_again().await;
    let mut outcome = Outcome { steps: 0, recovery: start, tally: BTreeMap::new() };
    strike(&mut world, plan, until, history, setting.expect, &mut outcome).await?;

    // The leases of killed processes expire by themselves, so every process must be served now.
    let last = world.served_again().await;
    outcome.recovery = outcome.recovery.and_then(|longest| last.map(|last| last.max(longest)));
    tokio::time::sleep(LONGEST_LEASE).await;
    outcome.tally = world.fleet.stop().await;
    world.read_sets();
    for key in left::after(&*world.servers) {
        let counter = Some(left::is_counter(&key));
        world.recorder.record(&Record::Left { key, counter });
    }
    Ok(outcome)
}

/// Lets faults begin, last and end, in a loop.
async fn strike(
    world: &mut World,
    mut plan: Plan,
    until: Until,
    history: &Path,
    expect: Expect,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let over = match until {
            Until::Steps(steps) => outcome.steps >= steps,
            Until::Elapsed(length) if started.elapsed() < length => false,
            // A row with a broken assumption goes on until the effect shows. At the planned end it may not have shown yet.
            Until::Elapsed(length) => {
                let broken = matches!(expect, Expect::Overlaps | Expect::Stale | Expect::Lost);
                if broken {
                    world.read_sets();
                }
                !broken || started.elapsed() > MOST.max(4 * length) || check::shows(history, expect)?
            }
        };
        if over {
            return Ok(());
        }
        let step = plan.next(&*world.servers);
        outcome.steps += 1;
        tokio::time::sleep(step.calm).await;
        let mut begun = Vec::new();
        for fault in &step.faults {
            begun.push(now());
            fault.begin(world).await;
        }
        tokio::time::sleep(step.lasts).await;
        for fault in step.faults.iter().rev() {
            fault.end(world, step.stays_open).await;
        }
        for (fault, from) in step.faults.iter().zip(begun) {
            let (name, what) = (fault.name(), format!("{fault:?}"));
            world.recorder.record(&Record::Fault { name, what, from, until: now() });
        }
        for place in world.servers.serving() {
            assert_answers(world.servers.server(place), &format!("after {:?}", step.faults[0]));
        }
        if matches!(step.faults[0], Fault::Change(_)) && plan.menu != Menu::Everything {
            // Gives another process time to get a lock that the server forgot.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if step.recovers {
            let recovery = world.served_again().await;
            outcome.recovery = outcome.recovery.and_then(|longest| recovery.map(|now| now.max(longest)));
        }
    }
}
