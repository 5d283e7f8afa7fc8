//! Which of the locks that were found are shown.

use std::time::Duration;

use crate::values;

/// Which of the locks that were found to show.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Filter {
    /// Only locks with this name: the template or declared name that alerts and dashboards show, such as `order:<id>`
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: Option<String>,

    /// Only locks that this call site holds, as alerts and dashboards show it
    #[arg(long, value_name = "SITE")]
    pub(crate) site: Option<String>,

    /// Only locks that have been held for longer than this, such as 90s or 1h
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) older: Option<Duration>,

    /// Only locks that are held for longer than their command said (--stuck-after). If the store does not know that: for longer than
    /// three times the lease, and 30s
    #[arg(long)]
    pub(crate) stuck: bool,

    /// Show at most this many, what hurts most first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}
