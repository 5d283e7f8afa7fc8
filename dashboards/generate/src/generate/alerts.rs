//! The alerts. Each names the lock, its holder, and the next step; the runbook has the details.

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

/// The holder of the alert's lock and its process, now or at its last scrape.
const HOLDING: &str = "{{ with query (printf \"max by (job, instance, site) (last_over_time(\
                       @site_oldest_hold_start_timestamp_seconds{store=%q, lock=%q}[15m])) > 0\" $labels.store $labels.lock) \
                       | sortByLabel \"instance\" }}{{ range . }}{{ .Labels.site }} in {{ .Labels.instance }} ({{ .Labels.job }}); \
                       {{ end }}{{ else }}no process that is scraped. {{ end }}";

/// How many callers wait for the alert's lock, and in which services.
const WAITING: &str = "{{ with query (printf \"sum by (job) (@waiters{store=%q, lock=%q}) > 0\" $labels.store $labels.lock) \
                       | sortByLabel \"job\" }}{{ range . }}{{ .Value | humanize }} in {{ .Labels.job }}; {{ end }}\
                       {{ else }}nobody. {{ end }}";

/// The locks that the alert's service holds in the alert's store, and its waiters there. The store is named after its
/// node unless it has a name of its own.
const AT_STAKE: &str = "{{ with query (printf \"topk(5, sum by (lock) (@held{store=%q, job=%q})) > 0\" $labels.backend $labels.job) }}\
                        Held there:{{ range . }} {{ .Labels.lock }} ({{ .Value | humanize }});{{ end }} {{ end }}\
                        {{ with query (printf \"sum(@waiters{store=%q, job=%q}) > 0\" $labels.backend $labels.job) }}\
                        {{ range . }}{{ .Value | humanize }}{{ end }} callers wait there. {{ end }}";

pub(crate) fn groups() -> Vec<Group> {
    let group =
        |name, alerts: Vec<Alert>| Group { name, interval: None, rules: alerts.into_iter().map(Rule::Alert).collect() };
    vec![
        Group { name: "distributed_lock_stuck", interval: None, rules: stuck::rules() },
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

/// Stores that a process cannot use: nodes without a connection, and quorums without a majority. `look` selects the
/// time: now, or within some time. A single member of a quorum does not count: the quorum works without it. A quorum
/// whose members disagree has its own alert.
fn out_of_reach(look: &dyn Fn(&str) -> String) -> String {
    let by = format!("{PROCESS}, backend");
    let once = |series: &str| format!("max by ({by}) ({})", look(series));
    let (connected, counted) = (once("@backend_connected"), once("@quorum_members{state=\"counted\"}"));
    // Only members of a quorum have this series.
    format!(
        "({connected} == 0 unless on ({by}) (increase(@quorum_repairs_total[5m]) >= 0)) \
         or {counted} < on ({by}) max by ({by}) (@quorum_majority) \
         unless on ({by}) @quorum_members{{state=\"disagrees\"}} > 0"
    )
}

/// Adds the node to a series of a lock. A store is named after its node unless it has a name of its own.
fn with_backend(of_lock: &str) -> String {
    format!("label_replace({of_lock}, \"backend\", \"$1\", \"store\", \"([^#]*).*\")")
}

/// Leaves out series of a store that its process cannot use, since alerts on stores already report that. Most commands
/// there fail, or the connection is down. `look` selects the time of a gauge, and `during` that of a share. Series of
/// another store of the same process stay. Some failing nodes match the name of no store: members, shards of a cluster,
/// and stores with a name of their own. Such a node leaves out everything of its process.
fn where_its_store_answers(of_lock: &str, look: &dyn Fn(&str) -> String, during: &dyn Fn(&str) -> String) -> String {
    let at = format!("{PROCESS}, backend");
    let stores = with_backend(&format!("max by ({PROCESS}, store) (@store_now_timestamp_seconds)"));
    let lost = out_of_reach(look);
    let others = format!(" unless on ({at}) {stores}");
    format!(
        "{} unless on ({at}) ({lost}) unless on ({at}) {} unless on ({PROCESS}) (({lost}){others}) unless on ({PROCESS}) {}",
        with_backend(of_lock),
        during(&refused(&at, "")),
        during(&refused(PROCESS, &others)),
    )
}

/// The places where most of the counted commands fail.
fn refused(by: &str, counted: &str) -> String {
    let sum = |total: &str| format!("sum by ({by}) (rate(@{total}[<<twoLooks>>]){counted})");
    let (errors, commands) = (sum("backend_errors_total"), sum("backend_command_seconds_count"));
    format!("({errors} / on ({by}) ({commands} > 0) > <<errorSharePage>>)")
}

/// The share of the processes of each service that could not use a store at their last scrape.
fn share_without_it() -> String {
    share_of(&format!("({})", out_of_reach(&str::to_owned)))
}

/// The share of the processes of each service that could not use a store in at least two scrapes.
fn share_out_of_reach() -> String {
    let lost = out_of_reach(&str::to_owned);
    let counted = "@quorum_members{state=\"counted\"}";
    let twice = [
        twice("@backend_connected", "(@backend_connected == 0)"),
        twice(counted, &format!("ignoring (state) ({counted} < ignoring (state) @quorum_majority)")),
    ];
    share_of(&format!("(({lost}) and on ({PROCESS}, backend) ({}))", twice.join(" or ")))
}

fn share_of(processes: &str) -> String {
    let by = format!("{SERVICE}, backend");
    let all = format!("count by ({by}) (max by ({PROCESS}, backend) (@backend_connected or @quorum_majority))");
    format!("count by ({by}) {processes} / on ({by}) {all}")
}
