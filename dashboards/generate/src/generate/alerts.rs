//! The alerts. Each names the lock, who holds it, and what to do; its runbook has the details.

mod budget;
mod plumbing;
mod queues;
mod roles;
mod safety;
mod stuck;

use super::names::{PROCESS, SERVICE, growth, twice};
use super::rule::{Alert, Group, Rule};

/// The call sites of the alert's lock, for alerts whose series do not name one.
const SITES: &str = "{{ range query (printf \"count by (site) (@site_info{store=%q, lock=%q})\" \
                     $labels.store $labels.lock) | sortByLabel \"site\" }} {{ .Labels.site }};{{ end }}";

pub(crate) fn groups() -> Vec<Group> {
    let group =
        |name, alerts: Vec<Alert>| Group { name, interval: None, rules: alerts.into_iter().map(Rule::Alert).collect() };
    vec![
        group("distributed_lock_stuck", stuck::alerts()),
        group("distributed_lock_queues", queues::alerts()),
        group("distributed_lock_roles", roles::alerts()),
        group("distributed_lock_safety", safety::alerts()),
        group("distributed_lock_plumbing", plumbing::alerts()),
        group("distributed_lock_budget", budget::alerts()),
    ]
}

/// The growth of a total within some minutes, where it grew.
fn happened(total: &str, minutes: u32, by: &str) -> String {
    format!("sum by ({by}) {} > 0", growth(total, minutes))
}

/// Stores that a process cannot use: nodes without a connection, and quorums without a majority. `look` says when: now, or
/// within some time. A quorum does without one of its members, so that alone is none; one whose members disagree has an alert of
/// its own.
fn out_of_reach(look: &dyn Fn(&str) -> String) -> String {
    let by = format!("{PROCESS}, node");
    let once = |series: &str| format!("max by ({by}) ({})", look(series));
    let (connected, counted) = (once("@backend_connected"), once("@quorum_members{state=\"counted\"}"));
    // Members are the nodes to which claims can be given again.
    format!(
        "({connected} == 0 unless on ({by}) (increase(@quorum_repairs_total[5m]) >= 0)) \
         or {counted} < on ({by}) max by ({by}) (@quorum_majority) \
         unless on ({by}) @quorum_members{{state=\"disagrees\"}} > 0"
    )
}

/// The share of the processes of each service that cannot use a store, where two scrapes at least have shown it.
fn share_out_of_reach() -> String {
    let by = format!("{SERVICE}, node");
    let lost = out_of_reach(&str::to_owned);
    let counted = "@quorum_members{state=\"counted\"}";
    let twice = [
        twice("@backend_connected", "(@backend_connected == 0)"),
        twice(counted, &format!("ignoring (state) ({counted} < ignoring (state) @quorum_majority)")),
    ];
    let all = format!("count by ({by}) (max by ({PROCESS}, node) (@backend_connected or @quorum_majority))");
    format!("count by ({by}) (({lost}) and on ({PROCESS}, node) ({})) / on ({by}) {all}", twice.join(" or "))
}
