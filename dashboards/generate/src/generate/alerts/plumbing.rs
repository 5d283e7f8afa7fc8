//! Alerts on the infrastructure that the locks and these alerts depend on.

use super::{happened, out_of_reach};
use crate::generate::names::{CONVERTED, SERVICE, age};
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    vec![
        Alert::new(
            "LockStoreUnreachable",
            Severity::Critical,
            &format!("count by ({SERVICE}, node) ({})", out_of_reach(&str::to_owned)),
            "{{ $value | humanize }} processes of {{ $labels.job }} have no connection to the lock store {{ $labels.node }}",
        )
        // Fires early: it explains all locks that are lost when the leases end.
        .after("15s")
        .keep("1m")
        .says(
            "The watchdogs of {{ $value | humanize }} processes of {{ $labels.job }} cannot reach {{ $labels.node }}; of a quorum, \
             a majority of its members. Locks held by their call sites are lost when their leases end, and no new one is granted. \
             Look at the store and the way to it.",
        ),
        Alert::new(
            "LockStoreErrors",
            Severity::Warning,
            &format!(
                "sum by ({SERVICE}, node) (rate(@backend_errors_total[5m])) \
                 / (sum by ({SERVICE}, node) (rate(@backend_command_seconds_count[5m])) > 0) > 0.01"
            ),
            "{{ $value | humanizePercentage }} of the commands to {{ $labels.node }} fail",
        )
        .after("5m")
        .says(
            "{{ $value | humanizePercentage }} of the commands that {{ $labels.job }} sends to the lock store \
             {{ $labels.node }} fail. Acquires fail and renewals come late at every call site that uses it. The panel \
             \"Failed commands\" shows the kinds of failure.",
        ),
        Alert::new(
            "LockStoreMayEvict",
            Severity::Warning,
            &format!("max by ({SERVICE}, node, policy) (@backend_eviction_policy_info) == 1"),
            "{{ $labels.node }} may delete locks when its memory is full ({{ $labels.policy }})",
        )
        .after("5m")
        .says(
            "The lock store {{ $labels.node }} of {{ $labels.job }} has maxmemory-policy {{ $labels.policy }}. When its \
             memory is full it may delete a lock that a call site holds, and give it to another. Set it to noeviction.",
        ),
        Alert::new(
            "LockFailover",
            Severity::Warning,
            &happened("failovers_total", 15, &format!("{SERVICE}, node")),
            "Another server took over {{ $labels.node }}, or it was started again",
        )
        .says(
            "The data of the lock store {{ $labels.node }} of {{ $labels.job }} have another history than before. Locks that \
             had not been replicated, or saved, are missing: call sites that held one were told, with the reason failover. \
             Find out why it happened.",
        ),
        Alert::new(
            "LockFailoverUnguarded",
            Severity::Warning,
            &format!(
                "(max by ({SERVICE}, node) (@replicas) > 0) and on ({SERVICE}, node) \
                 (max by ({SERVICE}, node) (@min_replicas) == 0) unless on ({SERVICE}, node) \
                 (sum by ({SERVICE}, node) (increase(@confirm_seconds_count[1h])) > 0)"
            ),
            "A failover of {{ $labels.node }} may lose locks that are held",
        )
        .after("15m")
        .says(
            "The lock store {{ $labels.node }} of {{ $labels.job }} has {{ $value | humanize }} replicas that may take over \
             without the last locks, and nothing waits for them. Add acks=1 to the URL, or set min-replicas-to-write 1; call \
             sites whose resources check fencing tokens are safe without.",
        ),
        Alert::new(
            "LockDurabilityShort",
            Severity::Warning,
            &happened("confirm_shortfalls_total", 10, &format!("{SERVICE}, node")),
            "Replicas of {{ $labels.node }} do not confirm locks in time",
        )
        .says(
            "Too few replicas or disks of {{ $labels.node }} confirmed what {{ $labels.job }} asked for: those acquires fail, and \
             locks that are held end with their leases. Look for a replica that is away, slow, or too far behind.",
        ),
        Alert::new(
            "LockSlotStuck",
            Severity::Warning,
            &format!("max by ({SERVICE}, node) (@slots_open) > 0"),
            "{{ $labels.node }} has {{ $value | humanize }} slots that are half moved",
        )
        .after("15m")
        .says(
            "The master {{ $labels.node }} of the cluster that {{ $labels.job }} locks in has been giving away or taking over \
             {{ $value | humanize }} slots for 15 minutes. Locks that are held go on, new ones in these slots wait. Look for a \
             resharding that was interrupted, and end it: redis-cli --cluster fix.",
        ),
        quorum(),
        disagreement(),
        Alert::new(
            "LockSamplerStalled",
            Severity::Warning,
            &format!("{} > 30", age("sampler_last_run_timestamp_seconds")),
            "{{ $labels.instance }} has not looked for stuck locks for {{ $value | humanizeDuration }}",
        )
        .keep("2m")
        .says(
            "The sampler thread of {{ $labels.instance }} ({{ $labels.job }}) does not run. Its stuck locks do not reach the \
             log, and a recorder that it feeds shows old numbers.",
        ),
        Alert::new(
            "LockClockSkew",
            Severity::Warning,
            "abs(@now_timestamp_seconds - timestamp(@now_timestamp_seconds)) > 10",
            "The clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} away from that of Prometheus",
        )
        .after("2m")
        .says(
            "The clocks of {{ $labels.instance }} ({{ $labels.job }}) and of Prometheus differ by \
             {{ $value | humanizeDuration }}. Locks and these alerts do not depend on it; logs, traces and times of day do.",
        ),
        inspector(),
        Alert::new(
            "LockNamesOverflow",
            Severity::Warning,
            &happened("label_overflow_total", 60, SERVICE),
            "{{ $labels.job }} has more lock names than metrics keep apart",
        )
        .says(
            "Acquires in {{ $labels.job }} are counted as lock=\"other\", because there are more than 200 names. A call \
             site probably gives its locks a rendered key as label; give it a template.",
        ),
        Alert::new(
            "LockHistogramsConverted",
            Severity::Warning,
            &format!("count by ({SERVICE}) (@{CONVERTED}) > 0"),
            "Prometheus stores the histograms of {{ $labels.job }} in a form that these rules do not read",
        )
        .after("10m")
        .says(
            "The scrape of {{ $labels.job }} converts classic histograms to native ones, so their buckets do not exist and \
             alerts and panels on waits are empty. Set convert_classic_histograms_to_nhcb to false for this job, or \
             always_scrape_classic_histograms to true.",
        ),
    ]
}

fn quorum() -> Alert {
    let by = format!("{SERVICE}, node");
    Alert::new(
        "LockQuorumDegraded",
        Severity::Critical,
        // With all members up, one that all must grant is as it should be.
        &format!(
            "(min by ({by}) (@quorum_members{{state=\"counted\"}}) <= on ({by}) max by ({by}) (@quorum_majority)) \
             and on ({by}) (max by ({by}) (@quorum_members{{state=~\"away|excluded\"}}) > 0)"
        ),
        "Only {{ $value | humanize }} members of the quorum {{ $labels.node }} count: one more failure, and no lock is granted",
    )
    .after("2m")
    .says(
        "A process of {{ $labels.job }} finds that only {{ $value | humanize }} members of the quorum {{ $labels.node }} \
         count. When no majority counts, no lock is granted and those that are held end with their leases. Bring the \
         others back: *excluded* ones count again by themselves, *away* ones do not answer.",
    )
}

fn disagreement() -> Alert {
    let by = format!("{SERVICE}, node");
    Alert::new(
        "LockMembersDisagree",
        Severity::Critical,
        &format!("max by ({by}) (@quorum_members{{state=\"disagrees\"}}) > 0"),
        "{{ $labels.job }} names other members of its quorum than processes before it, and gets no lock",
    )
    .after("1m")
    .says(
        "{{ $value | humanize }} members of the quorum {{ $labels.node }} also serve a quorum of other members. Two majorities \
         could miss each other, so {{ $labels.job }} is refused every lock. Write the same list in every process, and add or \
         remove one member at a time.",
    )
}

/// Judged by store: it does not matter which instance of which service is elected.
fn inspector() -> Alert {
    let fresh = format!("({} < 300)", age("inspector_last_success_timestamp_seconds"));
    Alert::new(
        "LockInspectorStale",
        Severity::Warning,
        &format!(
            "(count by (cluster, store) (last_over_time(@inspector_last_success_timestamp_seconds[6h])) \
             unless on (cluster, store) {fresh}) or (max by (cluster, store) (@inspector_truncated) == 1)"
        ),
        "The fleet inspector has not read all of {{ $labels.store }} for minutes",
    )
    .after("5m")
    .says(
        "No inspector has finished a scan of {{ $labels.store }} for five minutes, or its scans stop at their limit of keys \
         and see only part of them. Orphaned locks and keys without a lease are not noticed. Look at the log of the \
         processes that run an inspector, and at distributed_lock_inspector_truncated.",
    )
}
