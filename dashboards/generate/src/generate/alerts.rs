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

/// Adds the node of the store to what is of a lock: a store is called after its node, unless it was given a name.
fn with_node(of_lock: &str) -> String {
    format!("label_replace({of_lock}, \"node\", \"$1\", \"store\", \"([^#]*).*\")")
}

/// Leaves out what is of a store that its process cannot use, since most commands there fail or it has no connection: alerts on
/// stores say so, and what follows from that is no news. `look` says when of a gauge, and `during` of a share. What is of another
/// store of the same process stays. Some nodes are called after no store: members, shards of a cluster, stores that were given a
/// name; those explain all that is of their process.
fn where_its_store_answers(of_lock: &str, look: &dyn Fn(&str) -> String, during: &dyn Fn(&str) -> String) -> String {
    let at = format!("{PROCESS}, node");
    let stores = with_node(&format!("max by ({PROCESS}, store) (@store_now_timestamp_seconds)"));
    let lost = out_of_reach(look);
    let others = format!(" unless on ({at}) {stores}");
    format!(
        "{} unless on ({at}) ({lost}) unless on ({at}) {} unless on ({PROCESS}) (({lost}){others}) unless on ({PROCESS}) {}",
        with_node(of_lock),
        during(&refused(&at, "")),
        during(&refused(PROCESS, &others)),
    )
}

/// Where most commands fail, of those that are counted.
fn refused(by: &str, counted: &str) -> String {
    let sum = |total: &str| format!("sum by ({by}) (rate(@{total}[<<twoLooks>>]){counted})");
    let (errors, commands) = (sum("backend_errors_total"), sum("backend_command_seconds_count"));
    format!("({errors} / on ({by}) ({commands} > 0) > <<errorSharePage>>)")
}

/// The share of the processes of each service that cannot use a store, as they were scraped last.
fn share_without_it() -> String {
    share_of(&format!("({})", out_of_reach(&str::to_owned)))
}

/// The share of the processes of each service that cannot use a store, where two scrapes at least have shown it.
fn share_out_of_reach() -> String {
    let lost = out_of_reach(&str::to_owned);
    let counted = "@quorum_members{state=\"counted\"}";
    let twice = [
        twice("@backend_connected", "(@backend_connected == 0)"),
        twice(counted, &format!("ignoring (state) ({counted} < ignoring (state) @quorum_majority)")),
    ];
    share_of(&format!("(({lost}) and on ({PROCESS}, node) ({}))", twice.join(" or ")))
}

fn share_of(processes: &str) -> String {
    let by = format!("{SERVICE}, node");
    let all = format!("count by ({by}) (max by ({PROCESS}, node) (@backend_connected or @quorum_majority))");
    format!("count by ({by}) {processes} / on ({by}) {all}")
}
