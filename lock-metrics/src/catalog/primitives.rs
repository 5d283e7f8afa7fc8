//! Metrics of permits, stripes, leaders, jobs, and locks inside locks.

use super::{Metric, MetricKind, MetricUnit};

pub(crate) static PERMITS_LIMIT: Metric = Metric::new(
    "distributed_lock_permits_limit",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "The number of permits that this call site last asked for; absent if the number depends on the key.",
);
pub(crate) static STRIPES: Metric = Metric::new(
    "distributed_lock_stripes",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "The number of stripes of a striped lock; processes with different numbers do not exclude each other.",
);
pub(crate) static LEADER: Metric = Metric::new(
    "distributed_lock_leader",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "Elections that this process leads now; 0 if it was only a candidate.",
);
pub(crate) static CANDIDATES: Metric = Metric::new(
    "distributed_lock_candidates",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "Candidates of this process that wait to lead the election.",
);
pub(crate) static CANDIDATES_LED: Metric = Metric::new(
    "distributed_lock_candidates_led",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "Candidates of this process to which the store named a leader that uses this library.",
);
pub(crate) static JOB_LAST_SUCCESS: Metric = Metric::new(
    "distributed_lock_last_success_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When this process last finished a run of the job without an error, by the clock of the store; 0 if it never did.",
);
pub(crate) static JOB_PERIOD: Metric = Metric::new(
    "distributed_lock_job_period_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "The period in which a job runs at most once; the longest, if call sites differ.",
);
pub(crate) static DEADLOCKS: Metric = Metric::new(
    "distributed_lock_deadlocks_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["role"],
    "How often a task was in a deadlock: the victim gets an error, a member continues to wait.",
);
pub(crate) static ORDER_INVERSIONS: Metric = Metric::new(
    "distributed_lock_order_inversions_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store"],
    "How often two locks were first taken in both orders; 0 unless the order is watched.",
);
pub(crate) static ORDER_EDGE: Metric = Metric::new(
    "distributed_lock_order_edge",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["held", "wanted"],
    "Always 1: the lock `wanted` was waited for under the lock `held`. Only where the order is watched; at most 256 pairs.",
);
