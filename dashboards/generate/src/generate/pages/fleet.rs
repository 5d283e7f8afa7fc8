//! *Fleet*: the locks in the store, whatever process holds them. The data comes from the fleet inspector.

use crate::generate::dashboard::Dashboard;
use crate::generate::names::age_in_fleet;
use crate::generate::pages::on_call::without_a_holder;
use crate::generate::panel::{Kind, Panel, Unit};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        file: "fleet",
        title: "Locks: fleet",
        description: "Every lock in the store, also those of processes that are gone. Needs the fleet inspector.",
        of_store: true,
        one_lock: false,
        rows: vec![("The store now", now()), ("Over time", over_time()), ("The inspector", inspector())],
    }
}

fn now() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(6);
    vec![
        stat("Held", "Locks in the stores.", Unit::Count).query("held", &format!("sum({})", by_lock("max", HELD))),
        stat("Waiting", "The longest queue of any lock.", Unit::Count)
            .query("waiting", "max(@inspector_waiters)")
            .orange(10.5),
        stat("Keys without a lease", "They never expire.", Unit::Count)
            .query("keys", &format!("sum({})", by_lock("max", "@inspector_keys_without_ttl")))
            .red(1.0),
        stat("Locks without a holder", "Names with more keys in the store than scraped processes hold.", Unit::Count)
            .query("orphans", &format!("count({}) or vector(0)", without_a_holder()))
            .orange(1.0),
        Panel::new(
            "Every lock name",
            "Oldest hold by the store's clock. `lockctl list` names keys and owners.",
            Kind::Table { labels: &[("lock", "Lock"), ("store", "Store")] },
            Unit::Seconds,
        )
        .rare("Held for", &by_lock("max", &oldest()))
        .rare("Held", &by_lock("max", HELD))
        .rare("Waiters", &by_lock("max", "@inspector_waiters"))
        .rare("Shortest lease left", &by_lock("min", "@inspector_min_ttl_seconds > 0"))
        .rare("Keys without a lease", &by_lock("max", "@inspector_keys_without_ttl"))
        .rare("Commands stuck", &by_lock("max", "@inspector_commands_stuck > 0"))
        .rare("Pinned for", &by_lock("max", &age_in_fleet("inspector_oldest_pin_start_timestamp_seconds")))
        .rare("Job overdue by", &by_lock("max", "@inspector_job_overdue_seconds > 0")),
    ]
}

fn oldest() -> String {
    age_in_fleet("inspector_oldest_hold_start_timestamp_seconds")
}

/// Keys held in any mode, as each instance reports them.
const HELD: &str = "sum by (<<clusterLabel>>, <<namespaceLabel>>, job, instance, store, lock) (@inspector_held)";

/// During a new election, two instances may report one store.
fn by_lock(how: &str, what: &str) -> String {
    format!("{how} by (<<storeLabels>>, lock) ({what})")
}

fn over_time() -> Vec<Panel> {
    let chart = |title, description, unit, template: &str| {
        Panel::new(title, description, Kind::TimeSeries, unit).rare("{{lock}} in {{store}}", template)
    };
    vec![
        chart("Held", "Keys held, by lock.", Unit::Count, &by_lock("max", HELD)),
        Panel::new(
            "Held, by mode",
            "Keys held alone, by readers, and by holders of permits.",
            Kind::TimeSeries,
            Unit::Count,
        )
        .query(
            "{{mode}} in {{store}}",
            "sum by (store, mode) (max by (<<storeLabels>>, lock, mode) (@inspector_held))",
        ),
        chart("Waiters", "The longest queue of each lock.", Unit::Count, &by_lock("max", "@inspector_waiters")),
        chart(
            "Oldest hold",
            "By the store's clock, also of processes that are gone.",
            Unit::Seconds,
            &by_lock("max", &oldest()),
        ),
    ]
}

fn inspector() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(8);
    vec![
        Panel::new(
            "Which server a store is",
            "The servers behind each name of a store, as its processes find them (of one server, also behind sentinels): the beginning of \
             the id of its data (master_replid), which a restart and a failover change; of PostgreSQL its timeline and system identifier. Two under one name are two stores; one under two \
             names is one store, whose locks are shown twice.",
            Kind::Table {
                labels: &[("store", "Store"), ("server", "Server"), ("version", "Version"), ("topology", "Kind")],
            },
            Unit::Count,
        )
        .query("Processes", "count by (store, server, version, topology) (@store_info)"),
        stat("Last complete scan", "How long ago. The numbers above are as old as that.", Unit::Seconds)
            .query("{{store}}", &format!("min by (store) {}", age_in_fleet("inspector_last_success_timestamp_seconds")))
            .orange(60.5)
            .red(300.5),
        stat("Scan took", "The duration of the last scan.", Unit::Seconds)
            .query("{{store}}", "max by (store) (@inspector_scan_duration_seconds)"),
        stat("Cut short", "1 if the budget ended the last scan: there are more locks than are shown.", Unit::Count)
            .query("{{store}}", "max by (store) (@inspector_truncated)")
            .orange(0.5),
    ]
}
