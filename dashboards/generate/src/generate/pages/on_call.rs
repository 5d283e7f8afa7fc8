//! *Locks: on call*: the questions of a person on call at night, in their order.

use crate::generate::dashboard::Dashboard;
use crate::generate::names::{LOCK, PROCESS, STORE, age, growth, once};
use crate::generate::pages::roles::roles;
use crate::generate::panel::{Kind, Panel, Unit};

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
        .rare("State", &format!("sum by ({PROCESS}, store, lock, site) (@stuck) and on ({PROCESS}, store, lock, site) {}", held()))
        .rare("Held for", &format!("max by ({PROCESS}, store, lock, site) {}", held_for()))
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
            "Callers that stand still on average, charged to the call site that holds what they wait for: those that \
             wait now, and those whose wait has ended.",
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
            "Share of the grants that were not free at the first attempt. At 1 every caller queues.",
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

/// Keys in the store beyond the holds of processes and commands, by store and lock. As in LockOrphanedHold, a key counts
/// if it was there for two minutes: the inspector and the processes are not read at the same moment.
pub(super) fn without_a_holder() -> String {
    let of_process = format!("{PROCESS}, store, lock");
    let stored = format!(
        "max by ({LOCK}) (sum by ({of_process}) (max by ({of_process}, mode) (min_over_time(@inspector_held{{lock!=\"other\"}}[2m]))))"
    );
    let commands = format!("max by ({LOCK}) (max_over_time(@inspector_commands[2m]))");
    let held = once("max_over_time(@held{FLEET}[2m])", ", mode");
    let missing = format!("({stored} - on ({LOCK}) {commands} or on ({LOCK}) {stored})");
    let unnamed = format!("(max by ({STORE}) (@held{{FLEET, lock=\"other\"}}) > 0)");
    format!(
        "(({missing} - on ({LOCK}) {held} > 0) or ({missing} > 0 unless on ({LOCK}) {held})) unless on ({STORE}) {unnamed}"
    )
}

fn orphans() -> Vec<Panel> {
    vec![
        Panel::new(
            "Held in the store, but by no process that is scraped",
            "Keys beyond those that processes say they hold: the holder died, or is not scraped. They come free when their \
             leases end. Needs the fleet inspector.",
            Kind::Table { labels: &[("lock", "Lock"), ("store", "Store")] },
            Unit::Count,
        )
        .rare("Held", &without_a_holder())
        .wide(24),
    ]
}
