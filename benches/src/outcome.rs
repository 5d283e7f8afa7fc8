//! The result of a row.

use serde::Serialize;

use crate::fleet::Sample;
use crate::race::{OURS, Race};
use crate::stats::median;
use crate::target::Target;

/// The result of a row.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// Contestants with the same work, if the row has them.
    pub(crate) race: Race,
    /// Other figures.
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
}

/// A figure that was measured in each round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: Option<f64>,
    pub(crate) rounds: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, unit: &'static str, rounds: Vec<f64>) -> Self {
        Self { name, unit, median: median(rounds.clone()), rounds }
    }
}

/// The targets wherever our line contends.
pub(crate) fn safety(race: &Race) -> [Target; 3] {
    safety_of(race, &[OURS])
}

/// The same where more than one line is ours.
pub(crate) fn safety_of(race: &Race, ours: &[&str]) -> [Target; 3] {
    let all = |count: fn(&Sample) -> u64| ours.iter().map(|line| race.total(line, count)).sum();
    [
        Target::at_most("exclusion violations", all(|sample| sample.found.violations), 0.0),
        Target::at_most("token inversions", all(|sample| sample.found.inversions), 0.0),
        Target::at_most("errors", all(|sample| sample.errors), 0.0),
    ]
}
