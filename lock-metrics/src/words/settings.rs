//! What a builder sets for everything behind it.

use crate::words::trace::Traces;

/// The settings of the counts and of what leaves the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) traces: Traces,
    /// The names of the histograms that are exported, all if not set.
    pub(crate) histograms: Option<Vec<String>>,
}

impl Settings {
    /// Returns whether a histogram is exported.
    pub(crate) fn exports(&self, histogram: &str) -> bool {
        self.histograms.as_ref().is_none_or(|chosen| chosen.iter().any(|name| name == histogram))
    }
}
