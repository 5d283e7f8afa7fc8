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

/// Who has the alert's lock, and in which process, now or when it was scraped last.
const HOLDING: &str = "{{ with query (printf \"max by (job, instance, site) (last_over_time(\
                       @site_oldest_hold_start_timestamp_seconds{store=%q, lock=%q}[15m])) > 0\" $labels.store $labels.lock) \
                       | sortByLabel \"instance\" }}{{ range . }}{{ .Labels.site }} in {{ .Labels.instance }} ({{ .Labels.job }}); \
                       {{ end }}{{ else }}no process that is scraped. {{ end }}";

/// How many callers wait for the alert's lock, and in which service.
const WAITING: &str = "{{ with query (printf \"sum by (job) (@waiters{store=%q, lock=%q}) > 0\" $labels.store $labels.lock) \
                       | sortByLabel \"job\" }}{{ range . }}{{ .Value | humanize }} in {{ .Labels.job }}; {{ end }}\
                       {{ else }}nobody. {{ end }}";

/// What the alert's service holds in the alert's store, and who waits there: a store has the name of its node, if it was given none.
const AT_STAKE: &str = "{{ with query (printf \"topk(5, sum by (lock) (@held{store=%q, job=%q})) > 0\" $labels.node $labels.job) }}\
                        Held there:{{ range . }} {{ .Labels.lock }} ({{ .Value | humanize }});{{ end }} {{ end }}\
                        {{ with query (printf \"sum(@waiters{store=%q, job=%q}) > 0\" $labels.node $labels.job) }}\
                        {{ range . }}{{ .Value | humanize }}{{ end }} callers wait there. {{ end }}";

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

/// Processes most of whose commands fail, at whichever store: alerts on stores say so, and what follows from that is no news.
fn refused() -> String {
    let sum = |total: &str| format!("sum by ({PROCESS}) (rate(@{total}[<<twoLooks>>]))");
    let (errors, commands) = (sum("backend_errors_total"), sum("backend_command_seconds_count"));
    format!("({errors} / on ({PROCESS}) ({commands} > 0) > <<errorSharePage>>)")
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
