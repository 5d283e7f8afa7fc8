//! Metrics of the current holds and waits of a process.

use super::{Metric, MetricKind, MetricUnit};

pub(crate) static HELD: Metric = Metric::new(
    "distributed_lock_held",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "mode"],
    "Locks that this process holds now, reentrant grants left out.",
);
pub(crate) static HELD_SECONDS: Metric = Metric::new(
    "distributed_lock_held_seconds_total",
    MetricKind::Counter,
    MetricUnit::Seconds,
    &["lock", "store"],
    "Time for which locks were held, that of holds which still last included.",
);
pub(crate) static STUCK: Metric = Metric::new(
    "distributed_lock_stuck",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "Locks that this call site holds for longer than it said it would. Leaders and runs of jobs count only by a threshold of their own.",
);
pub(crate) static STUCK_OLDEST: Metric = Metric::new(
    "distributed_lock_stuck_oldest_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "site"],
    "When the oldest of the stuck holds of this call site began, 0 if there is none.",
);
pub(crate) static STUCK_WAITERS: Metric = Metric::new(
    "distributed_lock_stuck_waiters",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "Acquires of this process that wait for exactly a key that this call site holds for too long: for long themselves, or timed out within the last minute. A wait is long after 5 s or half of its own limit, or after what half of the waits for this lock take, if that is longer and the limit allows it.",
);
pub(crate) static WAITING_ON_HOLD: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_hold",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "holder_site"],
    "Of the acquires that wait now for this call site, those that wait for exactly its oldest hold in somebody's way: for long, as in stuck_waiters, or timed out within the last minute. If the start of no hold is known, as for readers and permits, all of them.",
);
pub(crate) static WAITING_ON_HOLD_START: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "holder_site"],
    "When that hold was granted, by the clock of the store; absent if nobody waits, if nobody wrote it down, and for readers and permits, whose members came at different times.",
);
pub(crate) static PERMITS_HELD: Metric = Metric::new(
    "distributed_lock_permits_held",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store"],
    "Permits that this process has now: a hold of several counts as often as it weighs.",
);
pub(crate) static WAITING_ON: Metric = Metric::new(
    "distributed_lock_waiting_on",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "holder_site"],
    "Acquires that wait now, by the call site that holds what they wait for; unknown if the store did not say.",
);
pub(crate) static WAITING_ON_OLDEST: Metric = Metric::new(
    "distributed_lock_waiting_on_oldest_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "holder_site"],
    "When the oldest wait of now for this call site began, 0 if there is none.",
);
pub(crate) static WAITERS: Metric = Metric::new(
    "distributed_lock_waiters",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "mode"],
    "Acquires of this process that wait now; who stands for an election is a candidate and does not count.",
);
pub(crate) static OLDEST_HOLD: Metric = Metric::new(
    "distributed_lock_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the oldest hold of now began, 0 if there is none.",
);
pub(crate) static SITE_OLDEST_HOLD: Metric = Metric::new(
    "distributed_lock_site_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "site"],
    "When the oldest hold of now by this call site began, 0 if there is none: names the holder.",
);
pub(crate) static OLDEST_WAIT: Metric = Metric::new(
    "distributed_lock_oldest_wait_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the oldest wait of now began, 0 if there is none.",
);
pub(crate) static LEASE_EXPIRY: Metric = Metric::new(
    "distributed_lock_lease_min_expiry_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "When the first lease of the holds of now ends unless it is renewed, 0 if there is none.",
);
