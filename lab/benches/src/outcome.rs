//! The result of a row: the measured figures, the targets, and events that must never happen.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::race::{OURS, Race};
use crate::stats::{median, ratio};

/// The result of a row.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// Contestants with the same work, one table for each kind of work.
    pub(crate) tables: Vec<Table>,
    /// Other figures.
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
    /// Events of this library that must never happen, with their counts. They fail the run and are not targets.
    pub(crate) faults: BTreeMap<&'static str, u64>,
}

/// A figure of each round, with its unit.
pub(crate) type Measure<R> = (&'static str, &'static str, fn(&R) -> f64);

/// A target for a ratio: its name, its numerator, its denominator and its bound.
pub(crate) type Wanted<R> = (&'static str, fn(&R) -> f64, fn(&R) -> f64, Bound, f64);

/// Contestants with the same work.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) about: &'static str,
    #[serde(flatten)]
    pub(crate) race: Race,
}

impl Outcome {
    /// Adds a table, and counts the faults of every line of this library under contention.
    pub(crate) fn add(&mut self, about: &'static str, race: Race) {
        for sample in race.lanes.iter().filter(|lane| lane.name.starts_with(OURS)).flat_map(|lane| &lane.rounds) {
            *self.faults.entry("exclusion violations").or_default() += sample.found.violations;
            *self.faults.entry("token inversions").or_default() += sample.found.inversions;
            *self.faults.entry("errors").or_default() += sample.errors;
        }
        self.tables.push(Table { about, race });
    }

    /// Combines rounds. A figure that is not finite was not measured. Without any round, each target is listed as not met.
    pub(crate) fn of_rounds<R>(
        rounds: &[R],
        figures: &[Measure<R>],
        targets: &[Wanted<R>],
        inversions: fn(&R) -> u64,
    ) -> Self {
        let mut outcome = Self::default();
        for (name, unit, of) in figures {
            let values: Vec<f64> = rounds.iter().map(of).filter(|value| value.is_finite()).collect();
            outcome.figures.extend((!values.is_empty()).then(|| Figure::new(*name, unit, values)));
        }
        for (what, above, below, bound, reach) in targets {
            let value = median(rounds.iter().filter_map(|round| ratio(above(round), below(round))).collect());
            outcome.targets.push(match bound {
                Bound::AtLeast => Target::at_least(*what, value, *reach),
                Bound::AtMost => Target::at_most(*what, value, *reach),
            });
        }
        if !rounds.is_empty() {
            outcome.faults.insert("token inversions", rounds.iter().map(inversions).sum());
        }
        outcome
    }
}

/// A figure measured in each round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) median: Option<f64>,
    pub(crate) rounds: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, rounds: Vec<f64>) -> Self {
        Self { name: name.into(), unit, median: median(rounds.clone()), rounds }
    }
}

/// One target of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    /// The measured value, or `None` if the measurement failed.
    pub(crate) value: Option<f64>,
    pub(crate) bound: Bound,
    pub(crate) reach: f64,
    pub(crate) met: bool,
}

/// Which side of the bound is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

impl Target {
    pub(crate) fn at_least(what: impl Into<String>, value: Option<f64>, reach: f64) -> Self {
        let met = value.is_some_and(|value| value >= reach);
        Self { what: what.into(), value, bound: Bound::AtLeast, reach, met }
    }

    pub(crate) fn at_most(what: impl Into<String>, value: Option<f64>, reach: f64) -> Self {
        let met = value.is_some_and(|value| value <= reach);
        Self { what: what.into(), value, bound: Bound::AtMost, reach, met }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert!(Target::at_least("x", Some(1.0), 1.0).met && Target::at_most("x", Some(1.0), 1.0).met);
        assert!(!Target::at_least("x", Some(0.9), 1.0).met && !Target::at_most("x", Some(1.1), 1.0).met);
        assert!(!Target::at_least("x", None, 0.0).met && !Target::at_most("x", Some(f64::NAN), 1.0).met);
    }
}
