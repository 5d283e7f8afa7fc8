//! Alerts on the infrastructure that the locks and these alerts depend on.

use super::{AT_STAKE, happened, out_of_reach, share_out_of_reach, share_without_it};
use crate::generate::names::{CONVERTED, PROCESS, SERVICE, STORE, age, growth, remembered};
use crate::generate::recording::INSPECTORS;
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    let answers = format!(" unless on ({SERVICE}, backend) ({} >= <<errorSharePage>>)", share_without_it());
    vec![
        Alert::new(
            "LockStoreUnreachable",
            Severity::Critical,
            &format!("{} >= <<errorSharePage>>", share_out_of_reach()),
            "{{ $value | humanizePercentage }} of the processes of {{ $labels.job }} have no connection to the lock store {{ $labels.backend }}",
        )
        // Fires early: it explains all locks that are lost when their leases end.
        .after("10s")
        .keep("1m")
        .says(&format!(
            "The watchdogs of {{{{ $value | humanizePercentage }}}} of the processes of {{{{ $labels.job }}}} cannot reach \
             {{{{ $labels.backend }}}}; of a quorum, a majority of its members. Locks held by their call sites are lost when their leases end, \
             and no new one is granted. {AT_STAKE}Look at the store and the way to it: `lockctl topology` says what each server answers."
        )),
        cut_off(),
        // A store that does not answer at all belongs to the alert above, whichever of the two would fire first.
        refuses(&answers),
        failing_commands().after("5m").says(&format!(
            "{{{{ $value | humanizePercentage }}}} of the commands that {{{{ $labels.job }}}} sends to the lock store \
             {{{{ $labels.backend }}}} fail. {KINDS}Acquires fail and renewals come late at every call site that uses it. The panel \
             \"Failed commands\" shows when it began.",
        )),
        slow(),
        two_servers(),
        Alert::new(
            "LockStoreMayEvict",
            Severity::Warning,
            &format!("max by ({SERVICE}, backend, policy) (@backend_eviction_policy_info) == 1"),
            "{{ $labels.backend }} may delete locks when its memory is full ({{ $labels.policy }})",
        )
        .after("5m")
        .says(
            "The lock store {{ $labels.backend }} of {{ $labels.job }} has maxmemory-policy {{ $labels.policy }}. When its \
             memory is full it may delete a lock that a call site holds, and give it to another. Set it to noeviction.",
        ),
        Alert::new(
            "LockFailover",
            Severity::Warning,
            &happened("failovers_total", 15, &format!("{SERVICE}, backend")),
            "Another server took over {{ $labels.backend }}, or it was started again",
        )
        .says(
            "The data of the lock store {{ $labels.backend }} of {{ $labels.job }} have another history than before. Locks that \
             had not been replicated, or saved, are missing: call sites that held one were told, with the reason failover. \
             Find out why it happened.",
        ),
        Alert::new(
            "LockFailoverUnguarded",
            Severity::Warning,
            &format!(
                "(max by ({SERVICE}, backend) (@replicas) > 0) and on ({SERVICE}, backend) \
                 (max by ({SERVICE}, backend) (@min_replicas) == 0) unless on ({SERVICE}, backend) \
                 (sum by ({SERVICE}, backend) (increase(@confirm_seconds_count[1h])) > 0) \
                 and on ({SERVICE}, backend) (sum by ({SERVICE}, backend) (increase(@backend_command_seconds_count{{op=\"acquire\"}}[1h])) > 0)"
            ),
            "A failover of {{ $labels.backend }} may lose locks that are held",
        )
        .after("15m")
        .says(
            "The lock store {{ $labels.backend }} of {{ $labels.job }} has {{ $value | humanize }} replicas that may take over \
             without the last locks, and nothing waits for them. Add acks=1 to the URL, or set min-replicas-to-write 1; call \
             sites whose resources check fencing tokens are safe without.",
        ),
        Alert::new(
            "LockDurabilityShort",
            Severity::Warning,
            &happened("confirm_shortfalls_total", 10, &format!("{SERVICE}, backend")),
            "Replicas of {{ $labels.backend }} do not confirm locks in time",
        )
        .says(
            "Too few replicas or disks of {{ $labels.backend }} confirmed what {{ $labels.job }} asked for: those acquires fail, and \
             locks that are held end with their leases. Look for a replica that is away, slow, or too far behind.",
        ),
        Alert::new(
            "LockSlotStuck",
            Severity::Warning,
            &format!("max by ({SERVICE}, backend) (@slots_open) > 0"),
            "{{ $labels.backend }} has {{ $value | humanize }} slots that are half moved",
        )
        .after("15m")
        .says(
            "The master {{ $labels.backend }} of the cluster that {{ $labels.job }} locks in has been giving away or taking over \
             {{ $value | humanize }} slots for 15 minutes. Locks that are held go on, new ones in these slots wait. Look for a \
             resharding that was interrupted, and end it: redis-cli --cluster fix.",
        ),
        quorum(),
        member_away(),
        disagreement(),
        Alert::new(
            "LockSamplerStalled",
            Severity::Warning,
            &format!("max by ({PROCESS}) ({}) > 30", age("sampler_last_run_timestamp_seconds")),
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
            // A clock that stands still is that of a job that pushed its metrics and has ended.
            &format!("max by ({PROCESS}) (abs(@now_timestamp_seconds - timestamp(@now_timestamp_seconds))) > 10 \
                 and on ({PROCESS}) (max by ({PROCESS}) (max_over_time(@now_timestamp_seconds[5m]) > min_over_time(@now_timestamp_seconds[5m])))"),
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
            &happened("label_overflow_total", 60, &format!("{SERVICE}, label")),
            "{{ $labels.job }} has more values of the label {{ $labels.label }} than metrics keep apart",
        )
        .says(
            "Series in {{ $labels.job }} are counted under {{ $labels.label }}=\"other\", because there are too many values of this label. A \
             call site probably gives its locks a rendered key as label; give it a template.",
        ),
        Alert::new(
            "LockInspectorOverflow",
            Severity::Warning,
            &format!("sum by ({STORE}) {} > 0", growth("inspector_label_overflow_total", 60)),
            "{{ $labels.store }} has more lock names than its inspector keeps apart",
        )
        .says(
            "Keys in {{ $labels.store }} are counted as lock=\"other\", because there are more than 2,000 names. Orphaned locks among them are \
             not noticed. A service probably gives its locks rendered keys as labels: `lockctl list` shows which.",
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
    let by = format!("{SERVICE}, backend");
    let counted = remembered("@quorum_members{state=\"counted\"}");
    let majority = remembered("@quorum_majority");
    let missing = remembered("@quorum_members{state=~\"away|excluded\"}");
    Alert::new(
        "LockQuorumDegraded",
        Severity::Critical,
        // With all members up, a quorum in which every member must grant is normal.
        &format!(
            "(min by ({by}) ({counted}) <= on ({by}) max by ({by}) ({majority})) \
             and on ({by}) (max by ({by}) ({missing}) > 0)"
        ),
        "Only {{ $value | humanize }} members of the quorum {{ $labels.backend }} count: one more failure, and no lock is granted",
    )
    .after("2m")
    .keep("1m")
    .says(&format!(
        "A process of {{{{ $labels.job }}}} finds that only {{{{ $value | humanize }}}} members of the quorum {{{{ $labels.backend }}}} \
         count. When no majority counts, no lock is granted and those that are held end with their leases. {AT_STAKE}Bring the others \
         back: *excluded* ones count again by themselves, *away* ones do not answer; `lockctl topology` names them."
    ))
}

fn disagreement() -> Alert {
    let by = format!("{SERVICE}, backend");
    Alert::new(
        "LockMembersDisagree",
        Severity::Critical,
        &format!("max by ({by}) ({}) > 0", remembered("@quorum_members{state=\"disagrees\"}")),
        "{{ $labels.job }} names other members of its quorum than processes before it, and gets no lock",
    )
    .after("2m")
    .keep("1m")
    .says(
        "{{ $value | humanize }} members of the quorum {{ $labels.backend }} also serve a quorum of other members. Two majorities \
         could miss each other, so {{ $labels.job }} is refused every lock. `lockctl topology` says which lists each member \
         remembers. Write the same list in every process, and add or remove one member at a time.",
    )
}

/// A quorum works without one member for a while, but the next failure may leave no majority.
fn member_away() -> Alert {
    let by = format!("{SERVICE}, backend");
    Alert::new(
        "LockMemberAway",
        Severity::Warning,
        &format!("max by ({by}) (@quorum_members{{state=~\"away|excluded\"}}) > 0"),
        "{{ $value | humanize }} members of the quorum {{ $labels.backend }} are away or do not count",
    )
    .after("15m")
    .says(
        "For 15 minutes, {{ $value | humanize }} members of the quorum {{ $labels.backend }} of {{ $labels.job }} have not answered, or do not \
         count since they lost their data. Locks go on as long as a majority counts. Bring them back before another one fails; the panel \
         \"Connection of the watchdog\" names them.",
    )
}

/// A few processes of a service without their store: a warning, because the others work.
fn cut_off() -> Alert {
    let by = format!("{SERVICE}, backend");
    let lost = out_of_reach(&str::to_owned);
    Alert::new(
        "LockProcessCutOff",
        Severity::Warning,
        &format!("count by ({by}) ({lost}) unless on ({by}) ({} >= <<errorSharePage>>)", share_without_it()),
        "{{ $value | humanize }} processes of {{ $labels.job }} have no connection to the lock store {{ $labels.backend }}",
    )
    .after("5m")
    .says(
        "For five minutes, {{ $value | humanize }} processes of {{ $labels.job }} have had no connection to {{ $labels.backend }}, which other \
         processes reach:{{ range query (printf \"max by (instance) (@backend_connected{backend=%q, job=%q}) == 0\" $labels.backend \
         $labels.job) | sortByLabel \"instance\" }} {{ .Labels.instance }};{{ end }} They get no locks, and have lost those that they held. \
         Look at the network and the credentials of these processes, and restart them.",
    )
}

/// The failing commands of each kind, for the text of an alert.
const KINDS: &str = "{{ range query (printf \"sum by (op, kind) (rate(@backend_errors_total{backend=%q, job=%q}[5m])) > 0\" $labels.backend \
                     $labels.job) | sortByLabel \"op\" }}{{ .Labels.op }}, {{ .Labels.kind }}: {{ .Value | humanize }} a second; {{ end }}";

/// Judged for each kind of command: many good renewals must not hide failing releases. Judged by the median process: a
/// command that failed during a failover was retried many times, and would outweigh all that succeeded.
fn refuses(answers: &str) -> Alert {
    let by = format!("{SERVICE}, backend");
    let (kind, process) = (format!("{by}, op"), format!("{PROCESS}, backend, op"));
    let (errors, commands) = ("@backend_errors_total", "@backend_command_seconds_count");
    let last = |total: &str| format!("sum by ({process}) (irate({total}[<<fourLooks>>]) and {})", remembered(total));
    let between_two_looks = format!(
        "quantile by ({kind}) (0.5, {} / on ({process}) ({} > 0)) > <<errorSharePage>>",
        last(errors),
        last(commands)
    );
    // Rare kinds: without a command between two scrapes, it is unknown whether they work again. Errors in two windows,
    // one after the other, are too long for a failover.
    let grown = |total: &str, before: &str| format!("sum by ({kind}) (rate({total}[<<aWhile>>]{before}))");
    let share = |before: &str| {
        format!("({} / on ({kind}) ({} > 0) > <<errorSharePage>>)", grown(errors, before), grown(commands, before))
    };
    let seldom = format!(
        "({} and on ({kind}) {} unless on ({kind}) ({} > 0))",
        share(""),
        share(" offset <<aWhile>>"),
        format_args!("sum by ({kind}) ({})", last(commands)),
    );
    let enough = format!("(sum by ({kind}) (increase({errors}[5m])) > 4.5)");
    Alert::new(
        "LockStoreRefuses",
        Severity::Critical,
        &format!("max by ({by}) ((({between_two_looks}) or {seldom}) and on ({kind}) {enough}){answers}"),
        "{{ $value | humanizePercentage }} of the commands of one kind to {{ $labels.backend }} fail",
    )
    .after("2m")
    .keep("1m")
    .says(&format!(
        "In half of the processes of {{{{ $labels.job }}}}, {{{{ $value | humanizePercentage }}}} or more of the commands of one kind to \
         the lock store {{{{ $labels.backend }}}} fail, for two minutes. {KINDS}{AT_STAKE}What cannot be acquired is not granted; what cannot be \
         renewed or released ends with its lease. The store is full (INFO memory: raise maxmemory, or find what fills it), refuses \
         writes (a replica, a full disk, too few replicas: `lockctl topology`), or its users were changed (ACL LOG): the runbook has the \
         command for each."
    ))
}

/// A single failing command is not a share.
fn failing_commands() -> Alert {
    let by = format!("{SERVICE}, backend");
    let errors = |how: &str| format!("sum by ({by}) ({how}(@backend_errors_total[5m]))");
    Alert::new(
        "LockStoreErrors",
        Severity::Warning,
        &format!(
            "({} / on ({by}) (sum by ({by}) (rate(@backend_command_seconds_count[5m])) > 0) > <<errorShare>>) \
             and on ({by}) ({} > 4.5)",
            errors("rate"),
            errors("increase"),
        ),
        "{{ $value | humanizePercentage }} of the commands to {{ $labels.backend }} fail",
    )
}

fn slow() -> Alert {
    Alert::new(
        "LockStoreSlow",
        Severity::Warning,
        &format!(
            "histogram_quantile(0.9, sum by ({SERVICE}, backend, le) (rate(@backend_command_seconds_bucket[10m]))) > <<slowStoreSeconds>>"
        ),
        "One command in ten to {{ $labels.backend }} takes {{ $value | humanizeDuration }} and more",
    )
    .after("10m")
    .says(
        "One in ten of the commands that {{ $labels.job }} sends to {{ $labels.backend }} takes {{ $value | humanizeDuration }} and more: every \
         acquire and every renewal waits for them; of a quorum, for a majority of its members. Look at SLOWLOG GET, at the machine of this \
         node, and at the way to it.",
    )
}

/// After a failover all processes find the new server within a minute.
fn two_servers() -> Alert {
    Alert::new(
        "LockStoreAmbiguous",
        Severity::Warning,
        &format!("count by ({STORE}) (count by ({STORE}, server) (@store_info)) > 1"),
        "{{ $value | humanize }} servers stand behind the name {{ $labels.store }}: their locks are counted as one",
    )
    .after("15m")
    .says(
        "For 15 minutes, processes that call their store {{ $labels.store }} have been connected to {{ $value | humanize }} different \
         servers: {{ range query (printf \"count by (job, server) (@store_info{store=%q})\" $labels.store) | sortByLabel \"job\" }}\
         {{ .Labels.server }} for {{ .Labels.job }}; {{ end }}If that is meant, as with one address in two namespaces, their locks do not \
         exclude each other, and alerts and dashboards take them for one: give each a name (`LockManagerBuilder::store_name`, \
         `FleetInspector::with_store_name`), or set storeLabels of these rules. If not, `lockctl topology` in each service says what its URL \
         leads to.",
    )
}

/// Judged by store: it does not matter which instance of which service is elected. A store without processes needs no inspector.
fn inspector() -> Alert {
    let fresh = format!("({} < 300)", age("inspector_last_success_timestamp_seconds"));
    Alert::new(
        "LockInspectorStale",
        Severity::Warning,
        &format!(
            "(max by ({STORE}) (max_over_time({INSPECTORS}[14d])) and on ({STORE}) @held \
             unless on ({STORE}) {fresh}) or (max by ({STORE}) (@inspector_truncated) == 1)"
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
