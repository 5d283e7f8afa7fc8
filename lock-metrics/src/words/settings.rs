//! The settings of a builder.

use crate::words::trace::Traces;

/// The settings of the counts and of the exports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) traces: Traces,
    /// The names of the exported histograms. All of them if not set.
    pub(crate) histograms: Option<Vec<String>>,
}

impl Settings {
    /// Returns whether a histogram is exported.
    pub(crate) fn exports(&self, histogram: &str) -> bool {
        self.histograms.as_ref().is_none_or(|chosen| chosen.iter().any(|name| name == histogram))
    }
}
