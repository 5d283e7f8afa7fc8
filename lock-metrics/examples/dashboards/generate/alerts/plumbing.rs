//! Alerts on what the locks and these alerts stand on.

use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    vec![
        Alert::new(
            "LockStoreUnreachable",
            Severity::Critical,
            "@backend_connected == 0",
            "{{ $labels.instance }} has no connection to the lock store {{ $labels.node }}",
        )
        .after("1m")
        .says(
            "The watchdog of {{ $labels.instance }} ({{ $labels.job }}) cannot reach {{ $labels.node }}. Locks held by its \
             call sites are lost when their leases end, and no new one is granted. Look at the store and the way to it.",
        ),
        Alert::new(
            "LockStoreErrors",
            Severity::Warning,
            "sum by (job, node) (rate(@backend_errors_total[5m])) \
             / (sum by (job, node) (rate(@backend_command_seconds_count[5m])) > 0) > 0.01",
            "{{ $value | humanizePercentage }} of the commands to {{ $labels.node }} fail",
        )
        .after("5m")
        .says(
            "{{ $value | humanizePercentage }} of the commands that {{ $labels.job }} sends to the lock store \
             {{ $labels.node }} fail. Acquires fail and renewals come late at every call site that uses it. The panel \
             \"Failed commands\" tells kinds of failure apart.",
        ),
        Alert::new(
            "LockStoreMayEvict",
            Severity::Warning,
            "max by (job, node, policy) (@backend_eviction_policy_info) == 1",
            "{{ $labels.node }} may delete locks when its memory is full ({{ $labels.policy }})",
        )
        .after("5m")
        .says(
            "The lock store {{ $labels.node }} of {{ $labels.job }} has maxmemory-policy {{ $labels.policy }}. When its \
             memory is full it may delete a lock that a call site holds, and give it to another. Set it to noeviction.",
        ),
        Alert::new(
            "LockSamplerStalled",
            Severity::Warning,
            "time() - @sampler_last_run_timestamp_seconds > 30",
            "{{ $labels.instance }} has not looked for stuck locks for {{ $value | humanizeDuration }}",
        )
        .after("2m")
        .says(
            "The sampler thread of {{ $labels.instance }} ({{ $labels.job }}) does not run, or its clock and that of \
             Prometheus differ. Its stuck locks do not reach the log, and ages shown for it may be wrong.",
        ),
        Alert::new(
            "LockInspectorStale",
            Severity::Warning,
            "time() - max by (job) (last_over_time(@inspector_last_success_timestamp_seconds[1d])) > 300",
            "No fleet inspector of {{ $labels.job }} has finished a scan for {{ $value | humanizeDuration }}",
        )
        .after("10m")
        .says(
            "The view of the whole store is {{ $value | humanizeDuration }} old, so orphaned locks and keys without a lease \
             go unseen in {{ $labels.job }}. Look at the log of the processes that run an inspector.",
        ),
        Alert::new(
            "LockNamesOverflow",
            Severity::Warning,
            "sum by (job) (increase(@label_overflow_total[1h])) > 0",
            "{{ $labels.job }} has more lock names than are told apart",
        )
        .says(
            "Acquires in {{ $labels.job }} are counted as lock=\"other\", because there are more than 200 names. A call \
             site probably gives its locks a rendered key as label; give it a template.",
        ),
    ]
}
