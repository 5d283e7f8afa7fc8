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
    "Locks of the whole fleet in the store. Like all inspector metrics, only from the elected instance.",
);
pub(crate) static WAITERS: Metric = gauge(
    "distributed_lock_inspector_waiters",
    MetricUnit::Count,
    PER_LOCK,
    "Processes in the queues of held locks, without those that poll. Absent if a queue could not be read.",
);
pub(crate) static WAITED_HOLD_START: Metric = gauge(
    "distributed_lock_inspector_waited_hold_start_timestamp_seconds",
    MetricUnit::Seconds,
    PER_SITE,
    "When the oldest hold with a queue began, by its call site and the clock of the reporting instance; absent if there is none.",
);
pub(crate) static WAITED_HOLD_WAITERS: Metric = gauge(
    "distributed_lock_inspector_waited_hold_waiters",
    MetricUnit::Count,
    PER_SITE,
    "Processes that queue for exactly that hold, without those that poll.",
);
pub(crate) static OVERFLOW: Metric = Metric::new(
    "distributed_lock_inspector_label_overflow_total",
    MetricKind::Counter,
    MetricUnit::Count,
    PER_STORE,
    "Keys that scans counted as lock=\"other\", because there are more than 2,000 names.",
);
pub(crate) static OLDEST_HOLD: Metric = gauge(
    "distributed_lock_inspector_oldest_hold_start_timestamp_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "When the oldest hold in the store began, by the clock of the reporting instance, 0 if there is none.",
);
pub(crate) static MIN_TTL: Metric = gauge(
    "distributed_lock_inspector_min_ttl_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "The shortest lease left among the held locks of the store, 0 if there is none.",
);
pub(crate) static KEYS_WITHOUT_TTL: Metric = gauge(
    "distributed_lock_inspector_keys_without_ttl",
    MetricUnit::Count,
    PER_LOCK,
    "Locks in the store that never expire: this library does not write such keys.",
);
pub(crate) static COMMANDS: Metric = gauge(
    "distributed_lock_inspector_commands",
    MetricUnit::Count,
    PER_LOCK,
    "Held locks of commands under `lockctl run`, which no process reports.",
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
    "Processes that queue for the locks of exactly those commands, without those that poll.",
);
pub(crate) static OLDEST_PIN: Metric = gauge(
    "distributed_lock_inspector_oldest_pin_start_timestamp_seconds",
    MetricUnit::Seconds,
    &["lock", "store", "session"],
    "When the oldest open transaction that pins the lock began, by its PostgreSQL session; absent if there is none.",
);
pub(crate) static JOB_OVERDUE: Metric = gauge(
    "distributed_lock_inspector_job_overdue_seconds",
    MetricUnit::Seconds,
    PER_LOCK,
    "For how long a successful run of the job has been missing, by the clock of the store; 0 if it is not overdue.",
);
pub(crate) static SCAN_DURATION: Metric = gauge(
    "distributed_lock_inspector_scan_duration_seconds",
    MetricUnit::Seconds,
    PER_STORE,
    "How long the last scan of the store took, including pauses.",
);
pub(crate) static TRUNCATED: Metric = gauge(
    "distributed_lock_inspector_truncated",
    MetricUnit::Count,
    PER_STORE,
    "1 if the last scan of the store ended at its limit of keys and saw only a part.",
);
pub(crate) static LAST_SUCCESS: Metric = gauge(
    "distributed_lock_inspector_last_success_timestamp_seconds",
    MetricUnit::Seconds,
    PER_STORE,
    "When this instance last finished a scan of the store, 0 if it never did.",
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
