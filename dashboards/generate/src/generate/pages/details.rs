//! *Locks: details*, the second page: durations, safety, and the infrastructure of the locks.

use crate::generate::dashboard::Dashboard;
use crate::generate::names::{age, growth};
use crate::generate::pages::on_call::{LEASE_LEFT, within_the_hour};
use crate::generate::panel::{Kind, Panel, Unit};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        file: "details",
        title: "Locks: details",
        description: "How long locks take and are held, how safe they are, and whether what they depend on works.",
        of_store: false,
        one_lock: false,
        rows: vec![
            ("How long?", times()),
            ("Is it still safe?", safety()),
            ("Does the plumbing work?", plumbing()),
            ("Topology: would a failover lose locks?", topology()),
        ],
    }
}

fn times() -> Vec<Panel> {
    let chart = |title, description| Panel::new(title, description, Kind::TimeSeries, Unit::Seconds).wide(6);
    let quantile = |share: &str, name: &str| {
        format!("histogram_quantile({share}, sum by (store, lock, le) (rate(@{name}_bucket[$__rate_interval])))")
    };
    vec![
        chart("Wait, median", "Half of the acquires got their answer within this time.")
            .worst("{{lock}} in {{store}}", &quantile("0.5", "wait_seconds")),
        chart("Wait, 99th percentile", "One acquire in a hundred took longer than this.")
            .worst("{{lock}} in {{store}}", &quantile("0.99", "wait_seconds")),
        chart("Hold, median", "Half of the holds were shorter. Counted when they end: a stuck lock is not in here.")
            .worst("{{lock}} in {{store}}", &quantile("0.5", "hold_seconds")),
        chart("Hold, 99th percentile", "One hold in a hundred was longer. Counted when they end.")
            .worst("{{lock}} in {{store}}", &quantile("0.99", "hold_seconds")),
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
        .worst("{{lock}} in {{store}}", "sum by (store, lock) (rate(@held_seconds_total[$__rate_interval]))"),
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
        .rare("{{lock}} in {{store}}", &format!("min by (store, lock) {LEASE_LEFT}")),
        chart(
            "Lease left at renewal",
            "The worst twentieth. A healthy watchdog renews with two thirds left.",
            Unit::Share,
        )
        .rare(
            "{{lock}} in {{store}}",
            "histogram_quantile(0.05, sum by (store, lock, le) (rate(@lease_remaining_ratio_bucket[$__rate_interval])))",
        ),
        chart("Lost", "Locks lost while they were held, by reason.", Unit::PerSecond)
            .worst("{{lock}}: {{reason}}", "sum by (store, lock, reason) (rate(@lost_total[$__rate_interval]))"),
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
            .query("{{backend}}: {{kind}}", "sum by (backend, kind) (rate(@backend_errors_total[$__rate_interval]))"),
        chart("Renewal lateness, 99th percentile", "How late renewals were sent: a busy or frozen process.", Unit::Seconds)
            .query("{{instance}}", "histogram_quantile(0.99, sum by (instance, le) (rate(@renewal_lateness_seconds_bucket[$__rate_interval])))"),
        Panel::new("Connection of the watchdog", "By process and node.", Kind::StateTimeline, Unit::UpDown)
            .wide(16)
            .query("{{instance}} to {{backend}}", "min by (instance, backend) (@backend_connected)"),
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
        chart(
            "Memory of the servers",
            "Share of maxmemory that is used: a full server refuses every lock. Needs redis_exporter.",
            Unit::Share,
        )
        .wide(12)
        .rare(
            "{{instance}}",
            "redis_memory_used_bytes{<<clusterLabel>>=~\"$cluster\"} / (redis_memory_max_bytes{<<clusterLabel>>=~\"$cluster\"} > 0)",
        )
        .orange(0.8)
        .red(0.95),
        chart("Connections of the servers", "Share of maxclients that is in use. Needs redis_exporter.", Unit::Share)
            .wide(12)
            .rare(
                "{{instance}}",
                "redis_connected_clients{<<clusterLabel>>=~\"$cluster\"} / (redis_config_maxclients{<<clusterLabel>>=~\"$cluster\"} > 0)",
            )
            .orange(0.8)
            .red(0.95),
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
            .query("{{backend}}", "min by (backend) (@replicas)"),
        stat("Replicas that writes need", "Without how many connected replicas each node refuses writes.", Unit::Count)
            .query("{{backend}}", "min by (backend) (@min_replicas)"),
        stat("Moved, 24 h", "How often a node was found at another address, or slots got other masters.", Unit::Count)
            .query(
                "{{change}}",
                "round(max by (change) (sum by (instance, change) (increase(@topology_changes_total[24h]))))",
            ),
        chart("Confirmations, 99th percentile", "Time until replicas or disks had confirmed.", Unit::Seconds).query(
            "{{backend}}: {{by}}",
            "histogram_quantile(0.99, sum by (backend, by, le) (rate(@confirm_seconds_bucket[$__rate_interval])))",
        ),
        chart("Confirmations that fell short", "Too few replicas or disks confirmed in time.", Unit::PerSecond)
            .query("{{backend}}", "sum by (backend) (rate(@confirm_shortfalls_total[$__rate_interval]))"),
        chart("Redirections", "Redirections and retries that masters of a cluster sent.", Unit::PerSecond)
            .query("{{backend}}: {{kind}}", "sum by (backend, kind) (rate(@redirections_total[$__rate_interval]))"),
        chart(
            "Slots that are half moved",
            "What masters of a cluster give away or take over; new locks there wait.",
            Unit::Count,
        )
        .query("{{backend}}", "max by (backend) (@slots_open)"),
        chart("Members of each quorum", "As seen by the process that counts the fewest.", Unit::Count)
            .query("{{backend}}: counted", "min by (backend) (@quorum_members{state=\"counted\"})")
            .query("{{backend}}: {{state}}", "max by (backend, state) (@quorum_members{state!=\"counted\"})")
            .query("{{backend}}: majority", "max by (backend) (@quorum_majority)"),
        chart("Holds that not every member confirms", "Renewed by a majority, so they are safe.", Unit::Count)
            .query("{{backend}}", "sum by (backend) (@quorum_degraded_holds)"),
        chart("Rounds of votes", "A second round is needed if the members gave different tokens.", Unit::PerSecond)
            .query("{{backend}}: {{phase}}", "sum by (backend, phase) (rate(@quorum_rounds_total[$__rate_interval]))")
            .query("{{backend}} given again", "sum by (backend) (rate(@quorum_repairs_total[$__rate_interval]))"),
    ]
}
