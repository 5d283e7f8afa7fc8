//! What a process holds and waits for at this moment.

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
    &["lock"],
    "Time for which locks were held, that of holds which still last included.",
);
pub(crate) static STUCK: Metric = Metric::new(
    "distributed_lock_stuck",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site"],
    "Locks that this call site holds for longer than it said it would.",
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
    &["lock", "mode"],
    "Acquires of this process that wait now.",
);
pub(crate) static OLDEST_HOLD: Metric = Metric::new(
    "distributed_lock_oldest_hold_start_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock"],
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
    &["lock"],
    "When the oldest wait of now began, 0 if there is none.",
);
pub(crate) static LEASE_EXPIRY: Metric = Metric::new(
    "distributed_lock_lease_min_expiry_timestamp_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock"],
    "When the first lease of the holds of now ends unless it is renewed, 0 if there is none.",
);
