//! Metrics of the current holds and waits of a process.

use super::{Metric, MetricKind, MetricUnit};

pub(crate) static HELD: Metric = Metric::new(
    "distributed_lock_held",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "mode"],
    "Locks that this process holds now, without reentrant grants.",
);
pub(crate) static HELD_SECONDS: Metric = Metric::new(
    "distributed_lock_held_seconds_total",
    MetricKind::Counter,
    MetricUnit::Seconds,
    &["lock", "store"],
    "Time for which locks were held, including holds that still last.",
);
pub(crate) static STUCK: Metric = Metric::new(
    "distributed_lock_stuck",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "Locks that this call site holds for longer than its stuck_after. Leaders and jobs count only if they set one.",
);
pub(crate) static STUCK_OLDEST: Metric = Metric::new(
    "distributed_lock_stuck_oldest_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "site"],
    "When the oldest stuck hold of this call site began, 0 if there is none.",
);
pub(crate) static STUCK_WAITERS: Metric = Metric::new(
    "distributed_lock_stuck_waiters",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "Acquires of this process that wait long for a stuck hold of this call site, or timed out within the last minute. A wait is long after 5 s or the lock's median wait, whichever is longer, but at most half of its own limit.",
);
pub(crate) static WAITING_ON_HOLD: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_hold",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "holder_site"],
    "Acquires that wait long (as in stuck_waiters) for exactly the oldest hold of this call site that has waiters, or timed out within the last minute. For readers and permits, whose start is unknown: all that wait.",
);
pub(crate) static WAITING_ON_HOLD_START: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "holder_site"],
    "When that hold was granted, by the clock of the store; absent without waiters, if the start is unknown, and for readers and permits.",
);
pub(crate) static PERMITS_HELD: Metric = Metric::new(
    "distributed_lock_permits_held",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "Permits that this process has now; a hold counts by its weight.",
);
pub(crate) static WAITING_ON: Metric = Metric::new(
    "distributed_lock_waiting_on",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "holder_site"],
    "Acquires that wait now, by the call site that holds the lock; unknown if the store did not name it.",
);
pub(crate) static WAITING_ON_OLDEST: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "holder_site"],
    "When the oldest present wait for this call site began, 0 if there is none.",
);
pub(crate) static WAITERS: Metric = Metric::new(
    "distributed_lock_waiters",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "mode"],
    "Acquires of this process that wait now, without candidates of elections.",
);
pub(crate) static OLDEST_HOLD: Metric = Metric::new(
    "distributed_lock_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the oldest present hold began, 0 if there is none.",
);
pub(crate) static SITE_OLDEST_HOLD: Metric = Metric::new(
    "distributed_lock_site_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "site"],
    "When the oldest present hold of this call site began, 0 if there is none.",
);
pub(crate) static OLDEST_WAIT: Metric = Metric::new(
    "distributed_lock_oldest_wait_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the oldest present wait began, 0 if there is none.",
);
pub(crate) static LEASE_EXPIRY: Metric = Metric::new(
    "distributed_lock_lease_min_expiry_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the first of the held leases ends unless it is renewed, 0 if there is none.",
);
