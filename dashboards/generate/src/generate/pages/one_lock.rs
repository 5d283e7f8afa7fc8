//! *One lock*: the same questions about the lock chosen at the top.

use crate::generate::dashboard::Dashboard;
use crate::generate::names::{age, growth};
use crate::generate::pages::on_call::{LEASE_LEFT, STUCK_OR_SILENT};
use crate::generate::panel::{Kind, Panel, STUCK, Unit};
use crate::generate::rules;

pub(crate) fn dashboard() -> Dashboard {
    let mut rows = vec![("Now", now()), ("Over time", over_time()), ("Its safety", safety())];
    for query in rows.iter_mut().flat_map(|(_, panels)| panels).flat_map(|panel| &mut panel.queries) {
        // Grafana does not quote a single value for a pattern.
        query.expr = query.expr.replace("lock=~\"$lock\"", "lock=\"$lock\"");
    }
    Dashboard {
        file: "one-lock",
        title: "One lock",
        description: "Everything about the lock chosen on top.",
        of_store: false,
        one_lock: true,
        rows,
    }
}

fn now() -> Vec<Panel> {
    let stat = |title, description, unit, legend, template: &str| {
        Panel::new(title, description, Kind::Stat, unit).query(legend, template)
    };
    let stuck = rules::on_dashboard("LockStuck", "");
    vec![
        stat("Held", "Keys of this lock that are held now.", Unit::Count, "held", "sum(@held)"),
        stat("Waiting", "Acquires that wait now.", Unit::Count, "waiting", "sum(@waiters)").orange(10.5),
        stat(
            "Oldest hold",
            "Age of the oldest hold. Red is the age of the oldest that is stuck, for as long as LockStuck fires.",
            Unit::Seconds,
            "age",
            &format!(
                "(max({}) or vector(0)) unless on () max({stuck}) > 0",
                age("oldest_hold_start_timestamp_seconds")
            ),
        )
        .rare(STUCK, &format!("max({stuck})")),
        stat(
            "Stuck after",
            "The age at which a hold counts as stuck.",
            Unit::Seconds,
            "threshold",
            "max(@stuck_after_seconds)",
        ),
        stat("Lease", "The ttl: how long others wait after a holder died.", Unit::Seconds, "ttl", "max(@ttl_seconds)"),
        stat(
            "Lost in the last day",
            "How often a holder lost it.",
            Unit::Count,
            "lost",
            &format!("round(sum({})) or vector(0)", growth("lost_total", 24 * 60)),
        )
        .red(0.5),
        Panel::new(
            "Who holds it now",
            "The oldest hold of each call site. The link on the process opens its live view, with keys.",
            Kind::Table { labels: &[("store", "Store"), ("site", "Held by"), ("instance", "In")] },
            Unit::Seconds,
        )
        .wide(12)
        .rare(
            "State",
            &format!(
                "(sum by (store, site, instance) (@stuck) and on (store, site, instance) \
                 (max by (store, site, instance) (@site_oldest_hold_start_timestamp_seconds) > 0)) \
                 or sum by (store, site, instance) ({STUCK_OR_SILENT}) > 0"
            ),
        )
        .rare(
            "Held for",
            &format!("max by (store, site, instance) ({} or {stuck})", age("site_oldest_hold_start_timestamp_seconds")),
        ),
        Panel::new(
            "Who can hold it",
            "Every call site that takes this lock, in how many processes.",
            Kind::Table { labels: &[("store", "Store"), ("site", "Call site"), ("function", "Function")] },
            Unit::Count,
        )
        .wide(12)
        .query("Processes", "sum by (store, site, function) (@site_info)"),
    ]
}

fn over_time() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    let quantile = |share: &str, name: &str| {
        format!("histogram_quantile({share}, sum by (le) (rate(@{name}_bucket[$__rate_interval])))")
    };
    vec![
        chart("Wait", "Time from asking to the answer.", Unit::Seconds)
            .rare("median", &quantile("0.5", "wait_seconds"))
            .rare("90th percentile", &quantile("0.9", "wait_seconds"))
            .rare("99th percentile", &quantile("0.99", "wait_seconds")),
        chart("Hold", "Time from the grant to the release. Counted when it ends.", Unit::Seconds)
            .rare("median", &quantile("0.5", "hold_seconds"))
            .rare("90th percentile", &quantile("0.9", "hold_seconds"))
            .rare("99th percentile", &quantile("0.99", "hold_seconds")),
        Panel::new("Waits", "How long callers waited, over time: the darker, the more.", Kind::Heatmap, Unit::Seconds)
            .query("{{le}}", "sum by (le) (increase(@wait_seconds_bucket[$__rate_interval]))"),
        chart("Held and waiting", "Waiters without a hold are a sign of an orphan.", Unit::Count)
            .query("held", "sum(@held)")
            .query("waiting", "sum(@waiters)"),
        chart("Acquires", "By outcome.", Unit::PerSecond)
            .query("{{outcome}}", "sum by (outcome) (rate(@acquisitions_total[$__rate_interval]))"),
        chart("Acquires, by mode", "Alone, to read, or a permit.", Unit::PerSecond)
            .query("{{mode}}", "sum by (mode) (rate(@acquisitions_total{outcome=\"acquired\"}[$__rate_interval]))"),
        chart("Grants", "How callers got it.", Unit::PerSecond)
            .query("{{path}}", "sum by (path) (rate(@grants_total[$__rate_interval]))"),
        chart(
            "Who waits for whom now",
            "Acquires that wait, by the call site that holds what they wait for.",
            Unit::Count,
        )
        .query("{{holder_site}}", "sum by (holder_site) (@waiting_on)"),
        chart(
            "Who makes them wait",
            "Seconds of waiting per second, charged to the call site that held it.",
            Unit::Count,
        )
        .query("{{holder_site}}", "sum by (holder_site) (rate(@blocked_seconds_sum[$__rate_interval]))"),
        chart("How often they wait for it", "Waits per second that each call site caused.", Unit::PerSecond)
            .query("{{holder_site}}", "sum by (holder_site) (rate(@blocked_seconds_count[$__rate_interval]))"),
    ]
}

fn safety() -> Vec<Panel> {
    let chart = |title, description, unit| Panel::new(title, description, Kind::TimeSeries, unit);
    vec![
        chart("Lease left", "Beside the full lease. A renewal at two thirds brings it back.", Unit::Seconds)
            .rare("left", &format!("min({LEASE_LEFT})"))
            .query("full lease", "max(@ttl_seconds)"),
        chart("Renewals", "By outcome.", Unit::PerSecond)
            .query("{{outcome}}", "sum by (outcome) (rate(@renewals_total[$__rate_interval]))"),
        chart("Lost and released", "How holds ended.", Unit::PerSecond)
            .query("lost: {{reason}}", "sum by (reason) (rate(@lost_total[$__rate_interval]))")
            .query("{{outcome}}", "sum by (outcome) (rate(@releases_total[$__rate_interval]))"),
    ]
}
