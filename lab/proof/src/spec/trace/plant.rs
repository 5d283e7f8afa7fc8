//! Steps that no store may take, planted into the logs of a run. A check that cannot fail proves nothing.

use std::collections::BTreeSet;

use crate::spec::trace::steps::{Claim, Kind, Step};

/// A log with one step that is not allowed.
pub(super) struct Plant {
    pub(super) what: &'static str,
    /// The number of that step, counted from 0.
    pub(super) number: usize,
    pub(super) steps: Vec<Step>,
}

type Planting = fn(&[Step], usize) -> Option<Step>;

/// The planted steps, and whether each replaces the step at its place or comes before it.
const PLANTS: [(&str, bool, Planting); 6] = [
    ("the lock is granted to the second in the queue", true, second_of_the_queue),
    ("a token is older than the one before", true, token_of_before),
    ("somebody releases who does not hold it", false, release_of_another),
    ("a lease that ended is renewed", false, renewal_after_the_end),
    ("a caller believes in its lease for a second too long", true, belief_beyond_the_lease),
    ("a caller enters with a token that is not its own", true, token_of_another),
];

/// Plants each step once, in the first log with a place for it after the beginning. Also returns the steps without a
/// place: a machine that stood still logs few steps.
pub(super) fn all(logs: &[&[Step]]) -> (Vec<Plant>, Vec<&'static str>) {
    let plant = |&(what, replaces, planting): &(&'static str, bool, Planting)| {
        let places = logs.iter().flat_map(|log| (10..log.len()).map(move |number| (log, number)));
        let mut planted = places.filter_map(|(log, number)| Some((log, number, planting(log, number)?)));
        let (log, number, step) = planted.next()?;
        let mut steps = log[..number].to_vec();
        steps.push(step);
        steps.extend(log[number + usize::from(replaces)..].iter().take(3).cloned());
        Some(Plant { what, number, steps })
    };
    let planted: Vec<Plant> = PLANTS.iter().filter_map(plant).collect();
    let is_planted = |what: &str| planted.iter().any(|plant| plant.what == what);
    let missing = PLANTS.iter().map(|(what, ..)| *what).filter(|what| !is_planted(what)).collect();
    (planted, missing)
}

/// The state of the store before a step.
fn before(log: &[Step], number: usize) -> Option<&Step> {
    log[..number].iter().rev().find(|step| matches!(step.kind, Kind::Store | Kind::Expire))
}

fn is(step: &Step, act: &str) -> bool {
    step.acts == [act]
}

fn second_of_the_queue(log: &[Step], number: usize) -> Option<Step> {
    let (step, before) = (&log[number], before(log, number)?);
    let second = *before.queue.get(1)?;
    let first_granted = step.kind == Kind::Store && step.held == before.queue.first().copied();
    let queue = before.queue.iter().copied().filter(|claim| *claim != second).collect();
    first_granted.then(|| Step { held: Some(second), queue, ..step.clone() })
}

fn token_of_before(log: &[Step], number: usize) -> Option<Step> {
    let (step, before) = (&log[number], before(log, number)?);
    let draw = log[..number].iter().map(|step| step.draw).max()?;
    (is(step, "HandOff") && before.held.is_some()).then(|| Step { draw: draw - 1, ..step.clone() })
}

fn release_of_another(log: &[Step], number: usize) -> Option<Step> {
    let before = before(log, number)?;
    let (holder, entered) = (before.held?, &log[number - 1]);
    let other: Claim = *before.queue.first().filter(|claim| claim.0 != holder.0)?;
    let claims = BTreeSet::from([other]);
    let queue = before.queue[1..].to_vec();
    let inside = entered.kind == Kind::Enter && entered.claims.contains(&holder);
    inside.then(|| Step {
        kind: Kind::Store,
        line: entered.line,
        now: entered.now,
        claims,
        acts: vec!["Free"],
        held: None,
        draw: 0,
        ends: 0,
        queue,
    })
}

fn renewal_after_the_end(log: &[Step], number: usize) -> Option<Step> {
    let (ended, held) = (&log[number - 1], before(log, number - 1)?);
    let step = Step { acts: vec!["Renew"], kind: Kind::Store, now: ended.now, ends: ended.now + 1_200, ..held.clone() };
    (ended.kind == Kind::Expire && held.held.is_some()).then(|| Step { claims: ended.claims.clone(), ..step })
}

fn belief_beyond_the_lease(log: &[Step], number: usize) -> Option<Step> {
    let step = &log[number];
    (step.kind == Kind::Enter).then(|| Step { ends: step.ends + 1_000, ..step.clone() })
}

fn token_of_another(log: &[Step], number: usize) -> Option<Step> {
    let step = &log[number];
    (step.kind == Kind::Enter).then(|| Step { draw: step.draw + 1, ..step.clone() })
}
