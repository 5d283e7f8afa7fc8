//! Long walks by a seed: more processes, more keys and more faults than every order could be followed of.

use lock_testing::limit;

use crate::complete::scenario;
use crate::modes::permits;
use crate::scenario::{Faults, Mode, READ, Scenario, Wrong};
use crate::state::{Caller, Place, State};
use crate::steps::Step;

const WALKS: u64 = 300;
const STEPS: usize = 800;

/// The result of a walk.
struct Walked {
    wrong: Option<Wrong>,
    grants: u64,
    trace: Vec<String>,
}

fn walk(scenario: &Scenario, seed: u64) -> Walked {
    let mut random = fastrand::Rng::with_seed(seed);
    let (tick, delay) = (random.usize(1..9), random.usize(1..5));
    let mut state = State::start(scenario);
    let mut trace = Vec::new();
    for _ in 0..STEPS {
        let steps = state.steps(scenario);
        let Some(&step) = (0..40).find_map(|_| {
            let step = &steps[random.usize(..steps.len())];
            (random.usize(..rarity(step, tick, delay)) == 0).then_some(step)
        }) else {
            continue;
        };
        trace.push(format!("{step:?} at {}", state.now));
        state.apply(scenario, step);
        if state.wrong.is_some() {
            break;
        }
        come_again(&mut state, &mut random);
    }
    if state.wrong.is_none() && !state.completes(scenario) {
        state.wrong = Some(Wrong::Starvation);
    }
    let grants = state.seen.iter().map(|seen| u64::from(seen.grants)).sum();
    Walked { wrong: state.wrong, grants, trace }
}

/// How many times a step is drawn until it is taken.
fn rarity(step: &Step, tick: usize, delay: usize) -> usize {
    match step {
        Step::Tick => tick,
        Step::Execute(_) | Step::Receive(_) | Step::Hear(_) => delay,
        Step::ExecuteStray(_) | Step::LoseStray(_) => 3,
        Step::Backstop(_) | Step::MendInbox(_) | Step::Renew(..) | Step::Wake(..) | Step::Downgrade(_) => 4,
        Step::Cancel(..) | Step::Sleep(..) | Step::ExecuteRefused(_) => 8,
        Step::BreakConnection(_)
        | Step::BreakInbox(_)
        | Step::Die(_)
        | Step::HearNonsense(_)
        | Step::Force(_)
        | Step::StrangerTakes(_)
        | Step::Flush
        | Step::FailOver
        | Step::SetClockBack => 25,
        _ => 1,
    }
}

/// Callers that are done come again.
fn come_again(state: &mut State, random: &mut fastrand::Rng) {
    for process in state.processes.iter_mut().filter(|process| process.alive) {
        for caller in process.gates.iter_mut().flat_map(|gate| &mut gate.callers) {
            if caller.place == Place::Done && random.usize(..6) == 0 {
                *caller = Caller::default();
            }
        }
    }
}

#[test]
#[limit(300)]
fn on_long_walks_nothing_goes_wrong() {
    let none = Faults::default();
    let long = Scenario {
        processes: 3,
        callers: 2,
        claims: 10_000,
        attempts: 10_000,
        horizon: 900,
        renews: true,
        ..scenario()
    };
    let most = Faults { connection: 12, inbox: 12, death: 1, cancel: 12, sleep: 12, refusal: 12, stranger: 6, ..none };
    let scenarios = [
        ("faults of all kinds", Scenario { faults: most, ..long }),
        ("two keys", Scenario { keys: 2, processes: 2, faults: most, ..long }),
        ("requeues", Scenario { never_passes: true, renews_shorter: true, faults: most, ..long }),
        (
            "locks that strangers share",
            Scenario { shares: true, never_passes: true, faults: Faults { step_back: 1, ..most }, ..long },
        ),
        ("remnants", Scenario { keeps_remnant: true, faults: most, ..long }),
        (
            "connections that cannot be killed",
            Scenario { native: false, kills: false, faults: Faults { refusal: 0, ..most }, ..long },
        ),
        ("locks freed by force", Scenario { faults: Faults { force: 12, step_back: 1, ..most }, ..long }),
        ("flushes", Scenario { faults: Faults { flush: 6, ..most }, ..long }),
        ("a failover", Scenario { faults: Faults { failover: 1, ..most }, ..long }),
        (
            "readers and writers",
            Scenario { modes: [Mode::Exclusive, READ, READ], downgrades: true, callers: 1, faults: most, ..long },
        ),
        ("permits", Scenario { modes: [permits(1, 3), permits(2, 3), permits(1, 2)], faults: most, ..long }),
    ];
    let only = std::env::var("LOCK_TEST_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = only.map_or(0..WALKS, |seed| seed..seed + 1);
    let mut grants = 0;
    for (name, scenario) in &scenarios {
        for seed in seeds.clone() {
            let walked = walk(scenario, seed);
            let last = walked.trace.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n");
            assert!(walked.wrong.is_none(), "{name}, LOCK_TEST_SEED={seed}: {:?} after\n{last}", walked.wrong);
            grants += walked.grants;
        }
    }
    let walks = scenarios.len() as u64 * (seeds.end - seeds.start);
    println!("figure: walks of the protocol with all rules: {walks}, with {grants} grants");
}
