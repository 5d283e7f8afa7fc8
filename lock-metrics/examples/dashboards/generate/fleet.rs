//! *Fleet*: what the store says, whoever holds the locks. From the fleet inspector.

use super::dashboard::Dashboard;
use super::panel::{Kind, Panel, Unit};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        file: "fleet",
        title: "Locks: fleet",
        description: "Every lock in the store, also those of processes that are gone. Needs the fleet inspector.",
        present_in: "inspector_last_success_timestamp_seconds",
        one_lock: false,
        rows: vec![("The store now", now()), ("Over time", over_time()), ("The inspector", inspector())],
    }
}

fn now() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(6);
    vec![
        stat("Held", "Locks in the store.", Unit::Count).query("held", "sum(max by (lock) (@inspector_held))"),
        stat("Waiting", "The longest queue of any lock.", Unit::Count)
            .query("waiting", "max(@inspector_waiters)")
            .orange(10.5),
        stat("Keys without a lease", "They are never freed by themselves.", Unit::Count)
            .query("keys", "sum(max by (lock) (@inspector_keys_without_ttl))")
            .red(1.0),
        stat("Locks without a holder", "Names held in the store, but by no process that is scraped.", Unit::Count)
            .query(
                "orphans",
                "count((max by (lock) (@inspector_held{lock!=\"other\"}) > 0) unless on (lock) (sum by (lock) (@held) > 0)) or vector(0)",
            )
            .orange(1.0),
        Panel::new(
            "Every lock name",
            "Oldest hold by the store's clock. `lockctl list` names keys and owners.",
            Kind::Table { labels: &[("lock", "Lock")] },
            Unit::Seconds,
        )
        .rare("Held for", "max by (lock) (time() - (@inspector_oldest_hold_start_timestamp_seconds > 0))")
        .rare("Held", "max by (lock) (@inspector_held)")
        .rare("Waiters", "max by (lock) (@inspector_waiters)")
        .rare("Shortest lease left", "min by (lock) (@inspector_min_ttl_seconds > 0)")
        .rare("Keys without a lease", "max by (lock) (@inspector_keys_without_ttl)"),
    ]
}

fn over_time() -> Vec<Panel> {
    let chart = |title, description, unit, template: &str| {
        Panel::new(title, description, Kind::TimeSeries, unit).rare("{{lock}}", template)
    };
    vec![
        chart("Held", "Keys held, by lock.", Unit::Count, "max by (lock) (@inspector_held)"),
        chart("Waiters", "The longest queue of each lock.", Unit::Count, "max by (lock) (@inspector_waiters)"),
        chart(
            "Oldest hold",
            "By the store's clock, also of processes that are gone.",
            Unit::Seconds,
            "max by (lock) (time() - (@inspector_oldest_hold_start_timestamp_seconds > 0))",
        ),
    ]
}

fn inspector() -> Vec<Panel> {
    let stat = |title, description, unit| Panel::new(title, description, Kind::Stat, unit).wide(8);
    vec![
        stat("Last complete scan", "How long ago. The numbers above are as old as that.", Unit::Seconds)
            .query("ago", "time() - max(@inspector_last_success_timestamp_seconds)")
            .orange(60.5)
            .red(300.5),
        stat("Scan took", "The duration of the last scan.", Unit::Seconds)
            .query("took", "max(@inspector_scan_duration_seconds)"),
        stat("Cut short", "1 if the budget ended the last scan: there are more locks than are shown.", Unit::Count)
            .query("truncated", "max(@inspector_truncated)")
            .orange(0.5),
    ]
}
