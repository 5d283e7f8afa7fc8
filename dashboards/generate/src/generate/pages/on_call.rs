//! *Locks: on call*: the questions of a person on call at night, in their order.

use crate::generate::dashboard::Dashboard;
use crate::generate::names::{FLEET, PROCESS, age, growth};
use crate::generate::pages::roles::roles;
use crate::generate::panel::{Kind, Panel, Unit};
use crate::generate::rules;

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
            ("Who leads, which jobs run, how many permits?", roles()),
            ("Is there a lock without a holder?", orphans()),
        ],
    }
}

/// How often an event happened within the last hour.
pub(super) fn within_the_hour(total: &str) -> String {
    format!("round(sum({})) or vector(0)", growth(total, 60))
}

fn stuck() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit);
    let labels = &[("lock", "Lock"), ("store", "Store"), ("site", "Held by"), ("instance", "In"), ("job", "Job")];
    let longest = age("oldest_wait_start_timestamp_seconds");
    vec![
        stat("Stuck now", "Locks held for longer than the stuck_after of their call sites: see the table.", Unit::Count)
            .query("stuck", &format!("sum({STUCK_OR_SILENT}) or vector(0)"))
            .red(1.0),
        stat("Waiting now", "Acquires that wait at this moment, over all locks.", Unit::Count)
            .query("waiting", "sum(@waiters)")
            .orange(10.5),
        stat("Longest wait now", "How long the caller that has waited longest has been waiting.", Unit::Seconds)
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
        stat("Stores out of reach", "Nodes without a connection, and quorums without a majority, as at least one process finds.", Unit::Count)
            .query("down", &format!("count(count by (backend) ({})) or vector(0)", rules::on_dashboard(OUT_OF_REACH, "")))
            .red(1.0),
        firing(),
        Panel::new(
            "Which lock, held by whom, since when",
            "The oldest hold of each call site in each process; the state counts all that are stuck. The link on the lock \
             opens its dashboard, the one on the process its live view, which knows the key, the owner and the token.",
            Kind::Table { labels },
            Unit::Seconds,
        )
        .high(7)
        .rare(
            "State",
            &format!(
                "(sum by ({PROCESS}, store, lock, site) (@stuck) and on ({PROCESS}, store, lock, site) {}) \
                 or sum by ({PROCESS}, store, lock, site) ({STUCK_OR_SILENT}) > 0",
                held()
            ),
        )
        .rare(
            "Held for",
            &format!("max by ({PROCESS}, store, lock, site) ({} or {})", held_for(), rules::on_dashboard("LockStuck", "")),
        )
        .rare(
            "Stuck after",
            &format!("max by ({PROCESS}, store, lock, site) (@stuck_after_seconds) and on ({PROCESS}, store, lock, site) {}", held()),
        )
        // All waiters: they are rarely in the process that holds the lock.
        .rare(
            "Waiters",
            &beside_holds(
                "label_replace(sum by (store, lock, holder_site) (@waiting_on{FLEET}), \
                 \"site\", \"$1\", \"holder_site\", \"(.*)\")",
                "store, lock, site",
            ),
        )
        .rare("Lease left", &beside_holds(&format!("(min by ({PROCESS}, store, lock) {LEASE_LEFT})"), &format!("{PROCESS}, store, lock"))),
    ]
}

/// The stuck holds of a process. While it is not scraped, its last report counts as long as in `LockStuck`.
pub(super) const STUCK_OR_SILENT: &str = "@stuck or (last_over_time(@stuck[15m]) and on (<<clusterLabel>>, <<namespaceLabel>>, job, instance) (<<up>> == 0))";

/// The recorded series of stores that a process cannot use.
const OUT_OF_REACH: &str = "process_backend:distributed_lock_out_of_reach:min";

/// The alerts about locks. An alert without a lock or a store is shown whichever is chosen.
fn firing() -> Panel {
    let labels = "alertname, severity, lock, store, backend, job, instance";
    let chosen = "alertname=~\"Lock.+\", <<clusterLabel>>=~\"$cluster|\", <<namespaceLabel>>=~\"$namespace|\", \
                  store=~\"$store|\", lock=~\"$lock|\"";
    Panel::new(
        "Alerts that fire",
        "Every alert about locks that fires now, and since when its condition holds. Empty if Prometheus has no rules: see README.",
        Kind::Table {
            labels: &[
                ("alertname", "Alert"),
                ("severity", "Severity"),
                ("lock", "Lock"),
                ("store", "Store"),
                ("backend", "Backend"),
                ("job", "Job"),
                ("instance", "In"),
            ],
        },
        Unit::Seconds,
    )
    .rare(
        "For",
        &format!(
            "time() - max by ({labels}) (ALERTS_FOR_STATE{{{chosen}}}) \
             and on ({labels}) max by ({labels}) (ALERTS{{alertstate=\"firing\", {chosen}}})"
        ),
    )
}

/// The time until the first lease ends, by the clock of its process, at the time of the scrape.
pub(super) const LEASE_LEFT: &str =
    "((@lease_min_expiry_timestamp_seconds > 0) - ignoring (lock, store) group_left () @now_timestamp_seconds)";

/// The call sites with a hold.
fn held() -> String {
    format!("(max by ({PROCESS}, store, lock, site) (@site_oldest_hold_start_timestamp_seconds) > 0)")
}

/// Repeats a value of a lock for each call site that holds it. `labels` are the labels that both share.
fn beside_holds(value: &str, labels: &str) -> String {
    format!(
        "sum by ({PROCESS}, store, lock, site) ({value} * on ({labels}) group_right () \
         ({} > bool 0))",
        held()
    )
}

fn waiting() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    vec![
        chart("Waiters", "Acquires that wait, of the ten locks with most.", Unit::Count)
            .wide(6)
            .worst("{{lock}} in {{store}}", "sum by (store, lock) (@waiters)"),
        chart("Oldest wait", "How long the oldest waiter of each lock has been waiting.", Unit::Seconds)
            .wide(6)
            .worst("{{lock}} in {{store}}", &format!("max by (store, lock) {}", age("oldest_wait_start_timestamp_seconds"))),
        Panel::new(
            "Who makes them wait",
            "The average number of waiting callers, by the call site that holds the lock. Present and past waits \
             count.",
            Kind::BarGauge,
            Unit::Count,
        )
        .query(
            "{{holder_site}} holds {{lock}}",
            "topk(10, sum by (store, lock, holder_site) (@waiting_on) \
             + (sum by (store, lock, holder_site) (rate(@blocked_seconds_sum[$__rate_interval])) or 0 * sum by (store, lock, holder_site) (@waiting_on)))",
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
        .worst("{{lock}} by {{site}}", &format!("max by (store, lock, site) {}", held_for())),
        chart(
            "Contended share",
            "Share of the grants that had to wait. At 1 every caller queues.",
            Unit::Share,
        )
        .wide(6)
        .worst(
            "{{lock}} in {{store}}",
            "sum by (store, lock) (rate(@grants_total{path!=\"uncontended\"}[$__rate_interval])) \
             / (sum by (store, lock) (rate(@grants_total[$__rate_interval])) > 0)",
        ),
        chart(
            "Deadlocks and inverted orders, 1 h",
            "Tasks that found that they wait for each other, and locks of pairs that are taken in both orders: each process \
             counts a pair once.",
            Unit::Count,
        )
        .wide(6)
        .rare("deadlock: {{role}}", &format!("round(sum by (role) {})", growth("deadlocks_total", 60)))
        .rare("{{lock}} out of order", &format!("round(sum by (store, lock) {})", growth("order_inversions_total", 60))),
        chart(
            "Acquires that did not get the lock",
            "By outcome: the wait was over, it was busy, cancelled, or failed.",
            Unit::PerSecond,
        )
        .wide(6)
        .worst(
            "{{lock}}: {{outcome}}",
            "sum by (store, lock, outcome) (rate(@acquisitions_total{outcome!=\"acquired\"}[$__rate_interval]))",
        ),
    ]
}

/// The keys in the store beyond the holds of processes and commands, as the alert says.
pub(super) fn without_a_holder() -> String {
    rules::on_dashboard("LockOrphanedHold", FLEET)
}

fn orphans() -> Vec<Panel> {
    vec![
        Panel::new(
            "Held in the store, but by no process that is scraped",
            "More keys than processes report: the holder died, or is not scraped. They become free when their \
             leases end. Needs the fleet inspector.",
            Kind::Table { labels: &[("lock", "Lock"), ("store", "Store")] },
            Unit::Count,
        )
        .rare("Held", &without_a_holder())
        .wide(24),
    ]
}
