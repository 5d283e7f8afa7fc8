//! The cost of long waits for the server and the clients.

use std::time::Duration;

use crate::Result;
use crate::bench::Bench;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::job::{Crowd, Wanted};
use crate::row::crowd::{Costs, Stages, measure};

/// Twenty locks are held, and many processes wait for each; then one process waits for many locks.
pub(super) fn locks(bench: &mut Bench) -> Result<Outcome> {
    let (managers, locks) = bench.scale.pick((400, 20), (100, 20), (3, 2));
    let waits = bench.scale.pick(20_000, 2_000, 20);
    // The hundredth waiter in a queue polls every fifty seconds, so the rate takes a while to settle.
    let (port, stages) = (bench.port(), stages(bench, [4, 60, 25]));
    let mut outcome = Outcome::default();
    let many = measure(bench, Crowd { port, managers, wanted: Wanted::Locks(locks) }, stages)?;
    add(&mut outcome, &format!("{managers} × {locks}"), many, [2.0, 4.0]);

    // At rest, each held lock is renewed once. A waiter is awake for some seconds. Then each sleeper polls once on its
    // own, before all poll in batches.
    let stages = self::stages(bench, [10, 25, 15]);
    let one = measure(bench, Crowd { port, managers: 1, wanted: Wanted::Locks(waits) }, stages)?;
    add(&mut outcome, &format!("1 × {waits}"), one, [4.0, 4.0]);
    outcome.figures.push(Figure::new(format!("1 × {waits}: memory a wait"), "B", vec![one.bytes]));
    outcome.targets.push(Target::at_most(format!("1 × {waits}: memory a wait, B"), Some(one.bytes), 4096.0));
    Ok(outcome)
}

/// One manager leads, and all others are candidates in the same election.
pub(super) fn candidates(bench: &mut Bench) -> Result<Outcome> {
    let managers = bench.scale.pick(2_000, 200, 3);
    let (port, stages) = (bench.port(), stages(bench, [4, 20, 15]));
    let mut outcome = Outcome::default();
    let costs = measure(bench, Crowd { port, managers, wanted: Wanted::Leadership }, stages)?;
    add(&mut outcome, &format!("{managers} × 1"), costs, [1.0]);
    Ok(outcome)
}

/// Returns the duration of rest, of waiting before the measurement, and of waiting within it. The figures are seconds
/// of a full run.
fn stages(bench: &Bench, [rest, settle, waiting]: [u64; 3]) -> Stages {
    let millis = |full: u64, quick, smoke| Duration::from_millis(bench.scale.pick(full * 1_000, quick, smoke));
    Stages {
        rest: millis(rest, 1_000, 50),
        settle: millis(settle, 4_000, 0),
        waiting: millis(waiting, 3_000, 100),
        counted: millis(5, 1_000, 100),
    }
}

/// Adds the cost of a crowd. `most` bounds the use of the server, and then of the clients, in % of one core.
fn add<const N: usize>(outcome: &mut Outcome, who: &str, costs: Costs, most: [f64; N]) {
    let Costs { rest, waiting, commands, connections, ended, .. } = costs;
    let mut figure =
        |what: &str, unit, value| outcome.figures.push(Figure::new(format!("{who}: {what}"), unit, vec![value]));
    figure("connections of a manager", "", connections);
    figure("server at rest, of one core", "%", rest.server);
    figure("server, of one core", "%", waiting.server);
    figure("time inside scripts", "%", waiting.scripts);
    figure("clients at rest, of one core", "%", rest.clients);
    figure("clients, of one core", "%", waiting.clients);
    figure("commands a second", "", commands);
    for ((side, value), most) in [("server", waiting.server), ("clients", waiting.clients)].into_iter().zip(most) {
        outcome.targets.push(Target::at_most(format!("{who}: {side}, % of one core"), Some(value), most));
    }
    *outcome.faults.entry("waits that ended").or_default() += ended;
}
