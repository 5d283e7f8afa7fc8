//! Alerts on elections, jobs, and numbers that processes must agree about.

use super::SITES;
use crate::generate::names::PROCESS;
use crate::generate::rule::{Alert, Severity};

/// How far back a success is looked for: processes that had one may be gone.
const REMEMBERED: &str = "14d:5m";

pub(crate) fn alerts() -> Vec<Alert> {
    let by = "cluster, namespace, lock";
    let period = format!("on ({by}) 2 * max by ({by}) (@job_period_seconds)");
    let succeeded = format!("max_over_time((max by ({by}) (@last_success_timestamp_seconds > 0))[{REMEMBERED}])");
    // That looks only once in five minutes.
    let recently = format!("max by ({by}) (@last_success_timestamp_seconds > 0)");
    let started =
        format!("(@last_success_timestamp_seconds * 0 + on ({PROCESS}) group_left () @start_timestamp_seconds)");
    let differs = |what: &str| format!("(max by ({by}) ({what}) > min by ({by}) ({what}))");
    vec![
        Alert::new(
            "LockNoLeader",
            Severity::Critical,
            &format!("sum by ({by}) (@leader) == 0"),
            "Nobody leads {{ $labels.lock }}, although processes stand for it",
        )
        .after("2m")
        .says(&format!(
            "Processes that stand for the election {{{{ $labels.lock }}}} are scraped, and none of them has led for two minutes. \
             Call sites that stand for it:{SITES} Either the store does not answer, or a process holds the lock that is not \
             scraped: `lockctl leader NAME` says who."
        )),
        Alert::new(
            "LockJobOverdue",
            Severity::Warning,
            &format!(
                "(time() - {succeeded} > {period} unless on ({by}) time() - {recently} < {period}) \
                 or (max by ({by}) (time() - {started}) > {period} unless on ({by}) ({succeeded} or {recently}))"
            ),
            "The job {{ $labels.lock }} has not succeeded for {{ $value | humanizeDuration }}",
        )
        .after("10m")
        .says(&format!(
            "The job {{{{ $labels.lock }}}} last ended without an error {{{{ $value | humanizeDuration }}}} ago, more than twice \
             its period; if it never did, that is how long a process has been trying. Call sites that start it:{SITES} Either \
             nobody starts it, or its runs fail, or one of them does not end: `lockctl jobs` says who ran it last, and when."
        )),
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
