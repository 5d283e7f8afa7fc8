//! Metrics that the elected inspector reads from Redis, for the whole fleet.

use super::{Metric, MetricKind, MetricUnit};

const PER_LOCK: &[&str] = &["lock", "store"];
const PER_SITE: &[&str] = &["lock", "store", "site"];
const PER_STORE: &[&str] = &["store"];

const fn gauge(name: &'static str, unit: MetricUnit, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric::new(name, MetricKind::Gauge, unit, labels, help)
}

pub(crate) static HELD: Metric = gauge(
    "distributed_lock_inspector_held",
    MetricUnit::Count,
    &["lock", "store", "mode"],
    "Locks that Redis holds for the whole fleet. Like all of the inspector, only from the instance that is elected.",
);
pub(crate) static WAITERS: Metric = gauge(
    "distributed_lock_inspector_waiters",
    MetricUnit::Count,
    PER_LOCK,
    "Processes in the queues of held locks in Redis; those that poll are not seen. Absent if a queue could not be read.",
);
pub(crate) static WAITED_HOLD_START: Metric = gauge(
    "distributed_lock_inspector_waited_hold_start_timestamp_seconds",
    MetricUnit::Seconds,
    PER_SITE,
    "When the oldest hold in Redis that processes queue for began, by the call site that holds it and by the clock of the instance that reports it; absent if there is none.",
);
pub(crate) static WAITED_HOLD_WAITERS: Metric = gauge(
    "distributed_lock_inspector_waited_hold_waiters",
    MetricUnit::Count,
    PER_SITE,
    "Processes that queue for exactly that hold; those that poll are not seen.",
);
pub(crate) static OVERFLOW: Metric = Metric::new(
    "distributed_lock_inspector_label_overflow_total",
    MetricKind::Counter,
    MetricUnit::Count,
    PER_STORE,
    "Keys that this instance counted as lock=\"other\" in its scans because there are more than 2,000 names.",
);
pub(crate) static OLDEST_HOLD: Metric = gauge(
    "distributed_lock_inspector_oldest_hold_start_timestamp_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "When the oldest hold in Redis began, by the clock of the instance that reports it, 0 if there is none.",
);
pub(crate) static MIN_TTL: Metric = gauge(
    "distributed_lock_inspector_min_ttl_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "The shortest lease left among the locks held in Redis, 0 if there is none.",
);
pub(crate) static KEYS_WITHOUT_TTL: Metric = gauge(
    "distributed_lock_inspector_keys_without_ttl",
    MetricUnit::Count,
    PER_LOCK,
    "Locks in Redis that never expire: no client of this library writes such keys.",
);
pub(crate) static COMMANDS: Metric = gauge(
    "distributed_lock_inspector_commands",
    MetricUnit::Count,
    PER_LOCK,
    "Of the locks that Redis holds, those of commands under `lockctl run`: no process reports them, and none is missing.",
);
pub(crate) static COMMANDS_STUCK: Metric = gauge(
    "distributed_lock_inspector_commands_stuck",
    MetricUnit::Count,
    PER_LOCK,
    "Commands under `lockctl run --stuck-after` that are older than that.",
);
pub(crate) static COMMANDS_STUCK_WAITERS: Metric = gauge(
    "distributed_lock_inspector_commands_stuck_waiters",
    MetricUnit::Count,
    PER_LOCK,
    "Processes that queue for the locks of exactly those commands; those that poll are not seen.",
);
pub(crate) static OLDEST_PIN: Metric = gauge(
    "distributed_lock_inspector_oldest_pin_start_timestamp_seconds",
    MetricUnit::Seconds,
    &["lock", "store", "session"],
    "When the oldest open transaction that has pinned the lock began, by its session in PostgreSQL; absent if there is none, and for stores without pins.",
);
pub(crate) static JOB_OVERDUE: Metric = gauge(
    "distributed_lock_inspector_job_overdue_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "For how long a run of the job that succeeds has been missing, by the clock of Redis; 0 if it is not overdue.",
);
pub(crate) static SCAN_DURATION: Metric = gauge(
    "distributed_lock_inspector_scan_duration_seconds",
    MetricUnit::Seconds,
    PER_STORE,
    "How long the last scan of Redis took, pauses included.",
);
pub(crate) static TRUNCATED: Metric = gauge(
    "distributed_lock_inspector_truncated",
    MetricUnit::Count,
    PER_STORE,
    "1 if the last scan of Redis ended at its budget of keys and saw only a part.",
);
pub(crate) static LAST_SUCCESS: Metric = gauge(
    "distributed_lock_inspector_last_success_timestamp_seconds",
    MetricUnit::Seconds,
    PER_STORE,
    "When this instance last finished a scan of Redis, 0 if it never did.",
);

pub(super) static FLEET: &[&Metric] = &[
    &HELD,
    &WAITERS,
    &WAITED_HOLD_START,
    &WAITED_HOLD_WAITERS,
    &OVERFLOW,
    &OLDEST_HOLD,
    &MIN_TTL,
    &KEYS_WITHOUT_TTL,
    &COMMANDS,
    &COMMANDS_STUCK,
    &COMMANDS_STUCK_WAITERS,
    &OLDEST_PIN,
    &JOB_OVERDUE,
    &SCAN_DURATION,
    &TRUNCATED,
    &LAST_SUCCESS,
];
