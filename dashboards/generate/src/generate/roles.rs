//! *On call*, the row of what has a role: leaders, jobs, permits, stripes, and locks inside locks.

use super::names::age;
use super::panel::{Kind, Panel, Unit};

pub(super) fn roles() -> Vec<Panel> {
    let table = |title, description, labels, unit| Panel::new(title, description, Kind::Table { labels }, unit).wide(8);
    vec![
        table(
            "Who leads",
            "Elections in which processes stand. 0: it is a candidate.",
            &[("lock", "Election"), ("instance", "Process")],
            Unit::Count,
        )
        .rare("Leads", "max by (lock, instance) (@leader)"),
        table(
            "Jobs",
            "When a run last ended without an error, in any process that is still there.",
            &[("lock", "Job")],
            Unit::Seconds,
        )
        .rare("Succeeded", &format!("min by (lock) {}", age("last_success_timestamp_seconds")))
        .rare("Period", "max by (lock) (@job_period_seconds)")
        .rare("Overdue by", "max by (lock) (@inspector_job_overdue_seconds > 0)"),
        table(
            "Locks inside locks",
            "What is waited for while something else is held, where the order is watched. A pair in both orders can deadlock.",
            &[("held", "Held"), ("wanted", "Waited for")],
            Unit::Count,
        )
        .rare("Processes", "sum by (held, wanted) (@order_edge)"),
        Panel::new(
            "Permits in use",
            "Against the number of permits that call sites ask for. A hold of several permits counts once. For one scrape the \
             line may pass the limit, although the store never gives more: a release counts once the store has confirmed it, and \
             processes are scraped one after the other, so a permit that changes hands can be seen at both.",
            Kind::TimeSeries,
            Unit::Count,
        )
        .rare("{{lock}}: in use", "sum by (lock) (@held{mode=\"permit\"}) and on (lock) max by (lock) (@permits_limit)")
        .rare("{{lock}}: permits", "max by (lock) (@permits_limit)"),
        Panel::new("Held, by mode", "Locks that are held alone, by readers, and permits.", Kind::TimeSeries, Unit::Count)
            .query("{{mode}}", "sum by (mode) (@held)"),
        Panel::new("Stripes", "How many stripes a name has: all processes must agree.", Kind::TimeSeries, Unit::Count)
            .rare("{{lock}}: most", "max by (lock) (@stripes)")
            .rare("{{lock}}: fewest", "min by (lock) (@stripes)"),
    ]
}
