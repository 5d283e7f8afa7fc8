//! Metrics of the process itself, and of the clocks behind its timestamps.

use super::{Metric, MetricKind, MetricUnit};

pub(crate) static BUILD_INFO: Metric = Metric::new(
    "distributed_lock_build_info",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["version"],
    "The version of this library, always 1.",
);
pub(crate) static NOW: Metric = Metric::new(
    "distributed_lock_now_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &[],
    "The time by the clock of this process: an age is the difference of a timestamp to it.",
);
pub(crate) static STORE_NOW: Metric = Metric::new(
    "distributed_lock_store_now_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["store"],
    "The time by the clock of the store, from the last grant; before the first grant, by the clock of the process.",
);
pub(crate) static START: Metric = Metric::new(
    "distributed_lock_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &[],
    "When this process began to count.",
);
pub(crate) static SAMPLER_LAST_RUN: Metric = Metric::new(
    "distributed_lock_sampler_last_run_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &[],
    "When the thread that looks for stuck locks last ran.",
);
