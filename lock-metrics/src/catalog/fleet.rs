//! Metrics that the elected inspector reads from Redis, for the whole fleet.

use super::Metric;

metrics! { FLEET:
    HELD "distributed_lock_inspector_held" ["lock", "store", "mode"]
        "Locks of the whole fleet in the store. Like all inspector metrics, only from the elected instance.";
    WAITERS "distributed_lock_inspector_waiters" ["lock", "store"]
        "Processes in the queues of held locks, without those that poll. Absent if a queue could not be read.";
    WAITED_HOLD_START "distributed_lock_inspector_waited_hold_start_timestamp_seconds" ["lock", "store", "site"]
        "When the oldest hold with a queue began, by its call site and the clock of the reporting instance; absent if there is none.";
    WAITED_HOLD_WAITERS "distributed_lock_inspector_waited_hold_waiters" ["lock", "store", "site"]
        "Processes that queue for exactly that hold, without those that poll.";
    OVERFLOW "distributed_lock_inspector_label_overflow_total" ["store"]
        "Keys that scans counted as lock=\"other\", because there are more than 2,000 names.";
    OLDEST_HOLD "distributed_lock_inspector_oldest_hold_start_timestamp_seconds" ["lock", "store"]
        "When the oldest hold in the store began, by the clock of the reporting instance, 0 if there is none.";
    MIN_TTL "distributed_lock_inspector_min_ttl_seconds" ["lock", "store"]
        "The shortest lease left among the held locks of the store, 0 if there is none.";
    KEYS_WITHOUT_TTL "distributed_lock_inspector_keys_without_ttl" ["lock", "store"]
        "Locks in the store that never expire: this library does not write such keys.";
    COMMANDS "distributed_lock_inspector_commands" ["lock", "store"]
        "Held locks of commands under `lockctl run` and of Redisson in Java, which no process reports.";
    COMMANDS_STUCK "distributed_lock_inspector_commands_stuck" ["lock", "store"]
        "Commands under `lockctl run --stuck-after` that are older than that.";
    COMMANDS_STUCK_WAITERS "distributed_lock_inspector_commands_stuck_waiters" ["lock", "store"]
        "Processes that queue for the locks of exactly those commands, without those that poll.";
    OLDEST_PIN "distributed_lock_inspector_oldest_pin_start_timestamp_seconds" ["lock", "store", "session"]
        "When the oldest open transaction that pins the lock began, by its PostgreSQL session; absent if there is none.";
    JOB_OVERDUE "distributed_lock_inspector_job_overdue_seconds" ["lock", "store"]
        "For how long a successful run of the job has been missing, by the clock of the store; 0 if it is not overdue.";
    SCAN_DURATION "distributed_lock_inspector_scan_duration_seconds" ["store"]
        "How long the last scan of the store took, including pauses.";
    TRUNCATED "distributed_lock_inspector_truncated" ["store"]
        "1 if the last scan of the store ended at its limit of keys and saw only a part.";
    LAST_SUCCESS "distributed_lock_inspector_last_success_timestamp_seconds" ["store"]
        "When this instance last finished a scan of the store, 0 if it never did.";
}
