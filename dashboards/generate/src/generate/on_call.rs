//! *Locks: on call*: what a person asks at night, in the order of the questions.

use super::dashboard::Dashboard;
use super::names::{PROCESS, age, growth};
use super::panel::{Kind, Panel, Unit};
use super::roles::roles;

/// Age of the oldest hold of each call site.
fn held_for() -> String {
    age("site_oldest_hold_start_timestamp_seconds")
}

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        file: "on-call",
        title: "Locks: on call",
        description: "Which lock is stuck, who holds it, since when, who waits, and whether it is safe to force it.",
        of_store: false,
        one_lock: false,
        rows: vec![
            ("Is anything stuck?", stuck()),
            ("Who waits, and for whom?", waiting()),
            ("How long?", times()),
            ("Who leads, which jobs run, how many permits?", roles()),
            ("Is it still safe?", safety()),
            ("Does the plumbing work?", plumbing()),
            ("Topology: would a failover lose locks?", topology()),
            ("Is there a lock without a holder?", orphans()),
        ],
    }
}

/// How often something happened within the last hour.
fn within_the_hour(total: &str) -> String {
    format!("round(sum({})) or vector(0)", growth(total, 60))
}

fn stuck() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit);
    let labels = &[("lock", "Lock"), ("site", "Held by"), ("instance", "In"), ("job", "Job")];
    let longest = age("oldest_wait_start_timestamp_seconds");
    vec![
        stat("Stuck now", "Locks held for longer than their call sites said they would. The table below names them.", Unit::Count)
            .query("stuck", "sum(@stuck)")
            .red(1.0),
        stat("Waiting now", "Acquires that wait at this moment, over all locks.", Unit::Count)
            .query("waiting", "sum(@waiters)")
            .orange(10.5),
        stat("Longest wait now", "How long the most patient caller has been waiting so far.", Unit::Seconds)
            .query("longest", &format!("max({longest}) or vector(0)"))
            .orange(2.5),
        stat("Lost, 1 h", "Locks that were taken, within the last hour, from a holder that had not released them.", Unit::Count)
            .query("lost", &within_the_hour("lost_total"))
            .red(0.5),
        stat(
            "Fencing regressions, 1 h",
            "Tokens within the last hour that were not greater than one before: the store lost data. Writes may be overwritten.",
            Unit::Count,
        )
        .query("regressions", &within_the_hour("fencing_regressions_total"))
        .red(0.5),
        stat("Stores out of reach", "Nodes to which a watchdog has no connection.", Unit::Count)
            .query("down", "count(@backend_connected == 0) or vector(0)")
            .red(1.0),
        Panel::new(
            "Which lock, held by whom, since when",
            "The oldest hold of each call site in each process; the state counts all that are stuck. The link on the lock \
             opens its dashboard, the one on the process its live view, which knows the key, the owner and the token.",
            Kind::Table { labels },
            Unit::Seconds,
        )
        .rare("State", &format!("sum by ({PROCESS}, lock, site) (@stuck) and on ({PROCESS}, lock, site) {}", held()))
        .rare("Held for", &format!("max by ({PROCESS}, lock, site) {}", held_for()))
        .rare(
            "Stuck after",
            &format!("max by ({PROCESS}, lock, site) (@stuck_after_seconds) and on ({PROCESS}, lock, site) {}", held()),
        )
        // Wherever they wait: rarely in the process that holds the lock.
        .rare(
            "Waiters",
            &beside_holds(
                "label_replace(sum by (cluster, lock, holder_site) (@waiting_on{FLEET}), \
                 \"site\", \"$1\", \"holder_site\", \"(.*)\")",
                "cluster, lock, site",
            ),
        )
        .rare("Lease left", &beside_holds(&format!("(min by ({PROCESS}, lock) {LEASE_LEFT})"), &format!("{PROCESS}, lock"))),
    ]
}

/// The time until the first lease ends, by the clock of its process, at the time of the scrape.
pub(super) const LEASE_LEFT: &str =
    "((@lease_min_expiry_timestamp_seconds > 0) - ignoring (lock) group_left () @now_timestamp_seconds)";

/// The call sites that hold something.
fn held() -> String {
    format!("(max by ({PROCESS}, lock, site) (@site_oldest_hold_start_timestamp_seconds) > 0)")
}

/// Repeats a value of a lock for each call site that holds it; they have these labels in common.
fn beside_holds(value: &str, labels: &str) -> String {
    format!(
        "sum by ({PROCESS}, lock, site) ({value} * on ({labels}) group_right () \
         ({} > bool 0))",
        held()
    )
}

fn waiting() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    vec![
        chart("Waiters", "Acquires that wait, by lock and process.", Unit::Count)
            .wide(6)
            .query("{{lock}} in {{instance}}", "sum by (lock, instance) (@waiters)"),
        chart("Oldest wait", "How long the oldest waiter of each lock has been waiting.", Unit::Seconds)
            .wide(6)
            .rare("{{lock}}", &format!("max by (lock) {}", age("oldest_wait_start_timestamp_seconds"))),
        Panel::new(
            "Who makes them wait",
            "Callers that stand still on average, charged to the call site that holds what they wait for: those that \
             wait now, and those whose wait has ended.",
            Kind::BarGauge,
            Unit::Count,
        )
        .query(
            "{{holder_site}} holds {{lock}}",
            "topk(10, sum by (lock, holder_site) (@waiting_on) \
             + (sum by (lock, holder_site) (rate(@blocked_seconds_sum[$__rate_interval])) or 0 * sum by (lock, holder_site) (@waiting_on)))",
        )
        .wide(12)
        .orange(1.0)
        .red(5.0),
        chart(
            "Oldest hold",
            "Age of the oldest hold of each call site. A line that climbs straight is a stuck lock.",
            Unit::Seconds,
        )
        .wide(6)
        .rare("{{lock}} by {{site}}", &format!("max by (lock, site) {}", held_for())),
        chart(
            "Contended share",
            "Share of the grants that were not free at the first attempt. At 1 every caller queues.",
            Unit::Share,
        )
        .wide(6)
        .rare(
            "{{lock}}",
            "sum by (lock) (rate(@grants_total{path!=\"uncontended\"}[$__rate_interval])) \
             / (sum by (lock) (rate(@grants_total[$__rate_interval])) > 0)",
        ),
        chart(
            "Deadlocks and inverted orders, 1 h",
            "Tasks that found that they wait for each other, and locks of pairs that are taken in both orders: each process \
             counts a pair once.",
            Unit::Count,
        )
        .wide(6)
        .rare("deadlock: {{role}}", &format!("round(sum by (role) {})", growth("deadlocks_total", 60)))
        .rare("{{lock}} out of order", &format!("round(sum by (lock) {})", growth("order_inversions_total", 60))),
        chart(
            "Acquires that did not get the lock",
            "By outcome: the wait was over, it was busy, cancelled, or failed.",
            Unit::PerSecond,
        )
        .wide(6)
        .query(
            "{{lock}}: {{outcome}}",
            "sum by (lock, outcome) (rate(@acquisitions_total{outcome!=\"acquired\"}[$__rate_interval]))",
        ),
    ]
}

fn times() -> Vec<Panel> {
    let chart = |title, description| Panel::new(title, description, Kind::TimeSeries, Unit::Seconds).wide(6);
    let quantile = |share: &str, name: &str| {
        format!("histogram_quantile({share}, sum by (lock, le) (rate(@{name}_bucket[$__rate_interval])))")
    };
    vec![
        chart("Wait, median", "Half of the acquires got their answer within this time.")
            .query("{{lock}}", &quantile("0.5", "wait_seconds")),
        chart("Wait, 99th percentile", "One acquire in a hundred took longer than this.")
            .query("{{lock}}", &quantile("0.99", "wait_seconds")),
        chart("Hold, median", "Half of the holds were shorter. Counted when they end: a stuck lock is not in here.")
            .query("{{lock}}", &quantile("0.5", "hold_seconds")),
        chart("Hold, 99th percentile", "One hold in a hundred was longer. Counted when they end.")
            .query("{{lock}}", &quantile("0.99", "hold_seconds")),
        Panel::new("Holds", "How long locks were held, over time: the darker, the more.", Kind::Heatmap, Unit::Seconds)
            .wide(12)
            .query("{{le}}", "sum by (le) (increase(@hold_seconds_bucket[$__rate_interval]))"),
        Panel::new("Grants", "How callers got their lock.", Kind::TimeSeries, Unit::PerSecond)
            .wide(6)
            .query("{{path}}", "sum by (path) (rate(@grants_total[$__rate_interval]))"),
        Panel::new(
            "Held on average",
            "Seconds of holding per second. For a lock with a single key, 1 means that it is never free.",
            Kind::TimeSeries,
            Unit::Count,
        )
        .wide(6)
        .query("{{lock}}", "sum by (lock) (rate(@held_seconds_total[$__rate_interval]))"),
    ]
}

fn safety() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    vec![
        chart(
            "Lease left",
            "Time until the first lease ends unless it is renewed. At 0 somebody else may have the lock.",
            Unit::Seconds,
        )
        .rare("{{lock}}", &format!("min by (lock) {LEASE_LEFT}")),
        chart(
            "Lease left at renewal",
            "The worst twentieth. A healthy watchdog renews with two thirds left.",
            Unit::Share,
        )
        .rare(
            "{{lock}}",
            "histogram_quantile(0.05, sum by (lock, le) (rate(@lease_remaining_ratio_bucket[$__rate_interval])))",
        ),
        chart("Lost", "Locks lost while they were held, by reason.", Unit::PerSecond)
            .query("{{lock}}: {{reason}}", "sum by (lock, reason) (rate(@lost_total[$__rate_interval]))"),
        chart("Renewals", "By outcome. An error is tried again until the lease ends.", Unit::PerSecond)
            .query("{{outcome}}", "sum by (outcome) (rate(@renewals_total[$__rate_interval]))"),
        chart("Releases", "By outcome. An abandoned lock stays taken until its lease ends.", Unit::PerSecond)
            .query("{{outcome}}", "sum by (outcome) (rate(@releases_total[$__rate_interval]))"),
        chart(
            "Fencing and unlocked runs",
            "Each of these is a write that a lock alone would not have stopped. The alerts name the locks.",
            Unit::PerSecond,
        )
        .query("stale write refused", "sum(rate(@fencing_rejections_total[$__rate_interval]))")
        .query("fencing regression", "sum(rate(@fencing_regressions_total[$__rate_interval]))")
        .query("ran without its lock", "sum(rate(@unlocked_runs_total[$__rate_interval]))"),
    ]
}

fn plumbing() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(6);
    vec![
        chart("Commands, 99th percentile", "Time to the store's answer, by command.", Unit::Seconds)
            .query("{{op}}", "histogram_quantile(0.99, sum by (op, le) (rate(@backend_command_seconds_bucket[$__rate_interval])))"),
        chart("Commands", "Commands sent, by kind.", Unit::PerSecond)
            .query("{{op}}", "sum by (op) (rate(@backend_command_seconds_count[$__rate_interval]))"),
        chart("Failed commands", "By node and kind of failure.", Unit::PerSecond)
            .query("{{node}}: {{kind}}", "sum by (node, kind) (rate(@backend_errors_total[$__rate_interval]))"),
        chart("Renewal lateness, 99th percentile", "How much later than planned renewals were sent: a busy or frozen process.", Unit::Seconds)
            .query("{{instance}}", "histogram_quantile(0.99, sum by (instance, le) (rate(@renewal_lateness_seconds_bucket[$__rate_interval])))"),
        Panel::new("Connection of the watchdog", "By process and node.", Kind::StateTimeline, Unit::UpDown)
            .wide(16)
            .query("{{instance}} to {{node}}", "min by (instance, node) (@backend_connected)"),
        stat("Sampler ran", "How long ago a process last looked for stuck locks, at worst.", Unit::Seconds)
            .query("ago", &format!("max({})", age("sampler_last_run_timestamp_seconds")))
            .orange(10.5)
            .red(30.5),
        stat("Nodes that may evict locks", "Their maxmemory-policy is not noeviction: a full memory deletes locks.", Unit::Count)
            .query("nodes", "count(@backend_eviction_policy_info == 1) or vector(0)")
            .red(1.0),
        stat("Acquires under other", "There are more than 200 lock names; a name probably contains a key.", Unit::Count)
            .query("in the last hour", &within_the_hour("label_overflow_total"))
            .orange(0.5),
        stat("Versions", "Versions of the library that run.", Unit::Count)
            .query("{{version}}", "count by (version) (@build_info)"),
    ]
}

fn topology() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(6);
    vec![
        stat("Failovers, 24 h", "How often another server took over a node, or it was started again.", Unit::Count)
            .query(
                "failovers",
                &format!("round(max(sum by (instance) {})) or vector(0)", growth("failovers_total", 24 * 60)),
            )
            .orange(0.5),
        stat("Replicas", "Replicas that are connected to each node.", Unit::Count)
            .query("{{node}}", "min by (node) (@replicas)"),
        stat("Replicas that writes need", "Without how many connected replicas each node refuses writes.", Unit::Count)
            .query("{{node}}", "min by (node) (@min_replicas)"),
        stat("Moved, 24 h", "How often a node was found at another address, or slots got other masters.", Unit::Count)
            .query(
                "{{change}}",
                "round(max by (change) (sum by (instance, change) (increase(@topology_changes_total[24h]))))",
            ),
        chart("Confirmations, 99th percentile", "Time until replicas or disks had confirmed.", Unit::Seconds).query(
            "{{node}}",
            "histogram_quantile(0.99, sum by (node, le) (rate(@confirm_seconds_bucket[$__rate_interval])))",
        ),
        chart("Confirmations that fell short", "Too few replicas or disks confirmed in time.", Unit::PerSecond)
            .query("{{node}}", "sum by (node) (rate(@confirm_shortfalls_total[$__rate_interval]))"),
        chart("Redirections", "What masters of a cluster said instead of an answer.", Unit::PerSecond)
            .query("{{node}}: {{kind}}", "sum by (node, kind) (rate(@redirections_total[$__rate_interval]))"),
        chart(
            "Slots that are half moved",
            "What masters of a cluster give away or take over; new locks there wait.",
            Unit::Count,
        )
        .query("{{node}}", "max by (node) (@slots_open)"),
        chart("Members of each quorum", "As the process that sees the fewest count sees them.", Unit::Count)
            .query("{{node}}: counted", "min by (node) (@quorum_members{state=\"counted\"})")
            .query("{{node}}: {{state}}", "max by (node, state) (@quorum_members{state!=\"counted\"})")
            .query("{{node}}: majority", "max by (node) (@quorum_majority)"),
        chart("Holds that not every member confirms", "Renewed by a majority, so they are safe.", Unit::Count)
            .query("{{node}}", "sum by (node) (@quorum_degraded_holds)"),
        chart("Rounds of votes", "A second one where the members had given different tokens.", Unit::PerSecond)
            .query("{{node}}: {{phase}}", "sum by (node, phase) (rate(@quorum_rounds_total[$__rate_interval]))")
            .query("{{node}} given again", "sum by (node) (rate(@quorum_repairs_total[$__rate_interval]))"),
    ]
}

/// Keys in the store beyond those that the processes hold, by store and lock.
pub(super) const ORPHANS: &str = "(max by (cluster, store, lock) (sum by (cluster, namespace, job, instance, store, lock) (@inspector_held{lock!=\"other\"})) \
    - on (cluster, store, lock) sum by (cluster, store, lock) (@held{FLEET}) > 0) \
    or (max by (cluster, store, lock) \
    (sum by (cluster, namespace, job, instance, store, lock) (@inspector_held{lock!=\"other\"})) > 0 \
    unless on (cluster, store, lock) sum by (cluster, store, lock) (@held{FLEET}))";

fn orphans() -> Vec<Panel> {
    vec![
        Panel::new(
            "Held in the store, but by no process that is scraped",
            "Keys beyond those that processes say they hold: the holder died, or is not scraped. They come free when their \
             leases end. Needs the fleet inspector.",
            Kind::Table { labels: &[("lock", "Lock"), ("store", "Store")] },
            Unit::Count,
        )
        .rare("Held", ORPHANS)
        .wide(24),
    ]
}
