//! Alerts on elections, jobs, and numbers that all processes must share.

use super::stuck::{inspected, lease_may_run};
use super::{SITES, where_its_store_answers};
use crate::generate::names::{
    LOCK, PROCESS, SERVICE, STORE, age_of_process, down, growth, once, remembered, store_now,
};
use crate::generate::recording::{JOB_PERIOD, LAST_SUCCESS};
use crate::generate::rule::{Alert, Severity};

/// How far back a success counts. The process that succeeded may be gone.
const REMEMBERED: &str = "14d";

/// The candidates of the alert's election, by service.
const CANDIDATES: &str = "{{ range query (printf \"sum by (job) (@candidates{store=%q, lock=%q}) > 0\" $labels.store $labels.lock) \
                          | sortByLabel \"job\" }}{{ .Value | humanize }} in {{ .Labels.job }}; {{ end }}";

pub(crate) fn alerts() -> Vec<Alert> {
    let differs = |what: &str| format!("(max by ({LOCK}) ({what}) > on ({LOCK}) min by ({LOCK}) ({what}))");
    vec![
        no_leader(),
        leader_changes(),
        job_overdue(),
        Alert::new(
            "LockLimitsDiffer",
            Severity::Warning,
            &format!("{} or {}", differs("@permits_limit"), differs("@stripes")),
            "Processes disagree about how many permits or stripes {{ $labels.lock }} has",
        )
        .after("30m")
        .says(&format!(
            "For half an hour, some processes have asked for {{{{ $value | humanize }}}} permits or stripes of {{{{ $labels.lock }}}} \
             and others for fewer. Permits: up to the greater number are held at a time. Stripes: processes with different \
             numbers do not exclude each other. Call sites that take it:{SITES} Finish the deploy, or give them one constant."
        )),
    ]
}

/// How many elections a name has: at most as many as one process leads or is a candidate for. A process is a candidate
/// in each election that it does not lead.
fn elections() -> String {
    let by = format!("{PROCESS}, store, lock");
    let at_once = format!("(max by ({by}) (@leader) + on ({by}) max by ({by}) (@candidates))");
    // A new election counts before the next step of the subquery.
    format!("max by ({LOCK}) (max_over_time({at_once}[5m:30s]) or {at_once})")
}

/// The leader may be a process whose scrapes fail, or a process without scrapes. The store still knows it.
fn no_leader() -> Alert {
    let (led, led_before) = (once(&remembered("@leader"), ""), once("@leader", ""));
    // A leader whose scrapes fail is unknown. The store decides, or the candidates that it names a leader to. Without
    // either, its silence counts for as long as its lease.
    let silent = format!(
        "(max by ({PROCESS}, store, lock) (last_over_time(@leader[6h]) > 0 unless @leader) and on ({PROCESS}) {} \
         unless on ({STORE}) {})",
        down(),
        inspected(),
    );
    let led_unseen = format!("max by ({LOCK}) ({}) > 0", remembered("@candidates_led"));
    let silent = format!(
        "({silent} and on ({PROCESS}, store, lock) {} or {silent} and on ({LOCK}) {led_unseen})",
        lease_may_run()
    );
    // A candidate that cannot reach the store cannot lead, and the store has its own alert. A candidate that can reach
    // it would lead.
    let could = where_its_store_answers(
        &format!("(max by ({PROCESS}, store, lock) ({}) > 0)", remembered("@candidates")),
        &str::to_owned,
        &str::to_owned,
    );
    let held = format!("max by ({LOCK}) (@inspector_held)");
    let missing = format!("{} - on ({LOCK}) {led}", elections());
    // One process may have two candidates in one election. So the number of led elections must also have fallen, or be 0.
    let fewer = format!("{led} == 0 or {led} < on ({LOCK}) max_over_time(({led_before})[6h:5m])");
    Alert::new(
        "LockNoLeader",
        Severity::Critical,
        &format!(
            "{missing} > 0 and on ({LOCK}) ({fewer}) and on ({LOCK}) ({could}) unless on ({LOCK}) {silent} \
             unless on ({LOCK}) ({held} >= on ({LOCK}) {})",
            elections()
        ),
        "Nobody leads {{ $labels.lock }}, although processes stand for it",
    )
    .after("2m")
    .keep("1m")
    .says(&format!(
        "Processes that stand for the election {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} are scraped, and for two minutes \
         {{{{ $value | humanize }}}} of the elections of this name had no leader. Call sites that stand for it:{SITES} \
         Candidates: {CANDIDATES}Either a process holds the lock that is not scraped, or another program has its key: `lockctl leader NAME` \
         says who."
    ))
}

/// A deploy replaces each process once. A leader that cannot stay keeps changing.
fn leader_changes() -> Alert {
    let began = growth("acquisitions_total{outcome=\"acquired\"}", 15);
    Alert::new(
        "LockLeaderChanges",
        Severity::Warning,
        &format!(
            "sum by ({LOCK}) (max by ({PROCESS}, store, lock) {began}) / on ({LOCK}) {} > <<leaderChanges>>",
            elections()
        ),
        "{{ $labels.lock }} has changed its leader {{ $value | humanize }} times within 15 minutes",
    )
    .after("15m")
    .says(&format!(
        "The election {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} has had {{{{ $value | humanize }}}} leaders within 15 minutes, \
         and goes on like that. Call sites that stand for it:{SITES} Either what the leader does fails and it resigns, or its lease \
         ends while it leads: look at the logs of the leaders, and at LockLost and LockWatchdogLate."
    ))
}

/// The last success is told by the clock of the store, so it is compared with that clock.
fn job_overdue() -> Alert {
    let known = format!("max by ({LOCK}) (@job_period_seconds)");
    // A service without running processes may have an overdue job. A running service without the job has given it up.
    let asleep =
        format!("max by ({LOCK}) (last_over_time({JOB_PERIOD}[{REMEMBERED}]) unless on ({SERVICE}) @build_info)");
    let period = format!("on ({LOCK}) 2 * ({known} or on ({LOCK}) {asleep})");
    let recently = format!("max by ({LOCK}) (@last_success_timestamp_seconds > 0)");
    let succeeded = format!("max by ({LOCK}) (max_over_time({LAST_SUCCESS}[{REMEMBERED}]))");
    // Without a running process, the time of the store is unknown.
    let now = format!("({} or on ({STORE}) max by ({STORE}) ({succeeded}) * 0 + time())", store_now());
    let since = |when: &str| format!("({now} - on ({STORE}) group_right () {when})");
    let never = format!(
        "max by ({LOCK}) (max by ({PROCESS}, store, lock) (@last_success_timestamp_seconds == 0) \
         + on ({PROCESS}) group_left () max by ({PROCESS}) ({}))",
        age_of_process()
    );
    Alert::new(
        "LockJobOverdue",
        Severity::Warning,
        &format!(
            "({} > {period} unless on ({LOCK}) {} < {period}) or ({never} > {period} unless on ({LOCK}) ({succeeded} or {recently})) \
             or (max by ({LOCK}) (@inspector_job_overdue_seconds) > {period})",
            since(&succeeded),
            since(&recently),
        ),
        "The job {{ $labels.lock }} has not succeeded for {{ $value | humanizeDuration }}",
    )
    .after("10m")
    .says(&format!(
        "The job {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} last ended without an error {{{{ $value | humanizeDuration }}}} ago, \
         more than twice its period; if it never did, that is how long a process has been trying. Of a name with many keys, such as one \
         for each tenant, it is the key that is overdue most. Call sites that start it:{SITES} Either nobody starts it, or its runs \
         fail, or one of them does not end: `lockctl jobs` says which key, who ran it last, and when."
    ))
}
