//! *On call*, the row of roles: leaders, jobs, permits, stripes, and nested locks.

use crate::generate::names::store_now;
use crate::generate::panel::{Kind, Panel, Unit};

pub(super) fn roles() -> Vec<Panel> {
    let table =
        |title, description, labels, unit| Panel::new(title, description, Kind::Table { labels }, unit).wide(12);
    vec![
        table(
            "Who leads",
            "Elections in which processes stand, and how many of a name each of them leads and stands for.",
            &[("lock", "Election"), ("store", "Store"), ("instance", "Process")],
            Unit::Count,
        )
        .rare("Role", "max by (store, lock, instance) (@leader)")
        .rare("Candidates", "max by (store, lock, instance) (@candidates)"),
        table(
            "Jobs",
            "When a run last ended without an error, by the clock of the store, in any process that is still there.",
            &[("lock", "Job"), ("store", "Store")],
            Unit::Seconds,
        )
        .rare(
            "Succeeded",
            &format!("{} - on (store) group_right () max by (store, lock) (@last_success_timestamp_seconds > 0)", store_now()),
        )
        .rare("Period", "max by (store, lock) (@job_period_seconds)")
        .rare("Overdue by", "max by (store, lock) (@inspector_job_overdue_seconds > 0)"),
        Panel::new(
            "Permits in use",
            "Against the number of permits that call sites ask for. A hold of several permits counts as many. For one scrape the \
             line may pass the limit, although the store never gives more: a release counts once the store has confirmed it, and \
             processes are scraped one after the other, so a permit that changes hands can be seen at both.",
            Kind::TimeSeries,
            Unit::Count,
        )
        .rare(
            "{{lock}} in {{store}}: in use",
            "sum by (store, lock) (@permits_held) and on (store, lock) max by (store, lock) (@permits_limit)",
        )
        .rare("{{lock}} in {{store}}: permits", "max by (store, lock) (@permits_limit)"),
        Panel::new("Held, by mode", "Locks that are held alone, by readers, and permits.", Kind::TimeSeries, Unit::Count)
            .query("{{mode}}", "sum by (mode) (@held)"),
        Panel::new("Stripes", "How many stripes a name has: all processes must agree.", Kind::TimeSeries, Unit::Count)
            .rare("{{lock}} in {{store}}: most", "max by (store, lock) (@stripes)")
            .rare("{{lock}} in {{store}}: fewest", "min by (store, lock) (@stripes)"),
        table(
            "Locks inside locks",
            "What is waited for while something else is held, where the order is watched. A pair in both orders can deadlock.",
            &[("held", "Held"), ("wanted", "Waited for")],
            Unit::Count,
        )
        .wide(24)
        .rare("Processes", "sum by (held, wanted) (@order_edge)"),
    ]
}
