//! The targets, and whether they were met.

use serde::Serialize;

/// One target of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    /// The measured value; `None` if nothing could be measured.
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
