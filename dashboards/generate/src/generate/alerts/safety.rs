//! Alerts on dangers to data.

use super::{HOLDING, SITES, WAITING, happened, where_its_store_answers, with_backend};
use crate::generate::names::{LOCK, PROCESS, SERVICE, STORE, remembered, twice};
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    let mut alerts = lost();
    alerts.extend(near());
    alerts
}

/// Alerts on damage that has happened.
fn lost() -> Vec<Alert> {
    let by_reason = format!("{PROCESS}, store, lock, reason");
    let lost = |reasons: &str| {
        let compared = if reasons.contains('|') { "=~" } else { "=" };
        happened(&format!("lost_total{{reason{compared}\"{reasons}\"}}"), 10, &by_reason)
    };
    let by_lock = format!("{SERVICE}, store, lock");
    // Separate alerts report that the store was away, or refused everything, once for all of its locks.
    let lost_by_accident = format!(
        "({} or ({}))",
        with_backend(&lost("expired|stolen|failover")),
        where_its_store_answers(
            &lost("unreachable"),
            &|series| format!("min_over_time({series}[15m])"),
            &|share| format!("max_over_time({share}[15m:30s])"),
        ),
    );
    vec![
        many_lost(&lost_by_accident),
        Alert::new(
            "LockLost",
            Severity::Critical,
            &lost_by_accident,
            "{{ $labels.lock }} was lost by its holder in {{ $labels.instance }}: {{ $labels.reason }}",
        )
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} was lost while {{{{ $labels.instance }}}} \
             ({{{{ $labels.job }}}}) held it; reason: {{{{ $labels.reason }}}}. Call sites that take it:{SITES} Their work was stopped; \
             check what they had done half: the log of {{{{ $labels.instance }}}} names the key (*lock was lost*), and `lockctl why KEY` \
             says who has it now. Held by: {HOLDING}Waiting: {WAITING}The runbook explains each reason."
        )),
        Alert::new(
            "LockTakenAway",
            Severity::Warning,
            &lost("revoked|max_hold"),
            "{{ $labels.lock }} was taken from its holder in {{ $labels.instance }}: {{ $labels.reason }}",
        )
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} was taken from {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}) on purpose, \
             by an operator (revoked) or by the max_hold of its code. Call sites that take it:{SITES} Their work was stopped; check \
             what they had done half, and why it took so long."
        )),
        Alert::new(
            "LockFencingRegression",
            Severity::Critical,
            &happened("fencing_regressions_total", 60, &by_lock),
            "The store gave {{ $labels.lock }} an old fencing token: it lost data",
        )
        .says(&format!(
            "A grant of the lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} to {{{{ $labels.job }}}} had a token that was not \
             greater than one before. The store was flushed, restored, or failed over without the last writes. Call sites that take \
             it:{SITES} Held by: {HOLDING}Waiting: {WAITING}Resources that check tokens are safe; check the others for writes of two \
             holders. `lockctl topology` says which servers stand behind the URL, `lockctl list` which keys they have."
        )),
        Alert::new(
            "LockStaleWriteRefused",
            Severity::Warning,
            &happened("fencing_rejections_total", 15, PROCESS),
            "A write with a stale fencing token was refused in {{ $labels.instance }}",
        )
        .says(
            "A holder in {{ $labels.instance }} ({{ $labels.job }}) wrote after it had lost its lock; the fencing gate \
             refused it, so no harm was done. Find out why it did not stop: the log names the tokens.",
        ),
        Alert::new(
            "LockUnlockedRuns",
            Severity::Warning,
            &happened("unlocked_runs_total", 15, &by_lock),
            "Code under {{ $labels.lock }} ran without the lock",
        )
        .says(&format!(
            "{{{{ $value | humanize }}}} protected bodies of the lock {{{{ $labels.lock }}}} in {{{{ $labels.job }}}} ran \
             without it, as their code allows when the store is away. They are at:{SITES} Check what two of them at once \
             may have done, and why the store was away."
        )),
        never_freed(),
        killed(),
        Alert::new(
            "LockReleaseAbandoned",
            Severity::Warning,
            &with_backend(&happened("releases_total{outcome=\"abandoned\"}", 15, &by_lock)),
            "Releases of {{ $labels.lock }} did not reach the store",
        )
        .says(&format!(
            "{{{{ $value | humanize }}}} holders of the lock {{{{ $labels.lock }}}} in {{{{ $labels.job }}}} had \
             finished, but their releases did not reach the store before the lease ended, and others waited until then. Call sites that take it:{SITES} Look at \
             the connection to the store."
        )),
    ]
}

/// A process that ends without a shutdown leaves its locks taken until their leases end. Judged for each process, so that a
/// deploy counts once.
fn killed() -> Alert {
    let by = format!("{PROCESS}, store, lock");
    let began = format!("max by ({PROCESS}) (@start_timestamp_seconds)");
    let before = format!("max by ({PROCESS}) (last_over_time(@start_timestamp_seconds[10m] offset 1m))");
    let ended = format!(
        "(max by ({by}) (last_over_time(@held[10m] offset 1m)) > bool 0) and on ({PROCESS}) ({began} > on ({PROCESS}) {before} + 1)"
    );
    Alert::new(
        "LockHoldersKilled",
        Severity::Warning,
        &format!("sum by ({SERVICE}, store, lock) (sum_over_time(({ended})[1h:1m]) > 2)"),
        "Processes of {{ $labels.job }} have ended {{ $value | humanize }} times within an hour while they held {{ $labels.lock }}",
    )
    .says(&format!(
        "Processes of {{{{ $labels.job }}}} have started again {{{{ $value | humanize }}}} times within an hour, and had the lock \
         {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} at the last scrape before. Each time, callers wait until the lease ends. Call \
         sites that take it:{SITES} Look for kills by the memory limit, failing liveness probes and panics; a program that is told to stop \
         frees its locks with `shutdown_on_signal`."
    ))
}

/// Many locks that are lost at once have one cause: a server that restarted empty, or a process without processor time.
fn many_lost(lost: &str) -> Alert {
    Alert::new(
        "LockManyLost",
        Severity::Critical,
        &format!("count by (backend) (count by (backend, store, lock) ({lost})) >= <<manyLocks>>"),
        "{{ $value | humanize }} locks of {{ $labels.backend }} were lost by their holders within ten minutes",
    )
    .says(
        "{{ $value | humanize }} locks in the lock store {{ $labels.backend }} were lost while they were held, within ten minutes. By process \
         and reason:{{ range query (printf \"topk(5, sum by (job, instance, reason) (increase(@lost_total{store=~%q}[10m])) > 0)\" \
         (printf \"%s(#.*)?\" (reReplaceAll \"[.]\" \"[.]\" $labels.backend))) }} {{ .Labels.instance }} ({{ .Labels.job }}), \
         {{ .Labels.reason }}: {{ .Value | humanize }};{{ end }} Of failover, the server lost its data: see LockFailover. Of expired, in one \
         process, that process had no processor time: see LockWatchdogLate. Check what the stopped work had done half; the logs name the \
         keys, and `lockctl list` shows who has them now.",
    )
}

/// The store has such a key, whichever instance reported it. After an inspector has ended, the result of two scrapes
/// still holds until the next inspector reports.
fn never_freed() -> Alert {
    let keys = "@inspector_keys_without_ttl";
    let shown = format!("max by ({LOCK}) ({})", twice(keys, &format!("({keys} > 0)")));
    Alert::new(
        "LockKeyWithoutTtl",
        Severity::Critical,
        &format!(
            "max by ({LOCK}) ({}) > 0 \
             or (max by ({LOCK}) (last_over_time({keys}[<<twoLooks>>])) > 0 and on ({LOCK}) {shown} unless on ({STORE}) {keys})",
            remembered(keys)
        ),
        "{{ $value | humanize }} keys of {{ $labels.lock }} have no lease and are never freed",
    )
    // A live holder restores the lease of a key within a third of its ttl.
    .after("2m")
    .keep("1m")
    .says(&format!(
        "Keys of the lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} have no time to live. This library always sets one, so \
         another program wrote them or took it away. `lockctl list --prefix` with what these keys begin with names them and, if it \
         is one of ours, the holder's call site. Held by: {HOLDING}Waiting: {WAITING}They block every caller until somebody frees \
         them, as the runbook says."
    ))
}

/// Alerts on damage that will happen unless an operator acts.
fn near() -> Vec<Alert> {
    let by_lock = format!("{SERVICE}, store, lock");
    vec![
        Alert::new(
            "LockLeaseNearlyLost",
            Severity::Warning,
            &with_backend(&format!(
                "histogram_quantile(0.05, sum by ({by_lock}, le) (rate(@lease_remaining_ratio_bucket[10m]))) < 0.3"
            )),
            "Leases of {{ $labels.lock }} are renewed with only {{ $value | humanizePercentage }} left",
        )
        .after("10m")
        .says(&format!(
            "One renewal in twenty of the lock {{{{ $labels.lock }}}} in {{{{ $labels.job }}}} comes when less than \
             {{{{ $value | humanizePercentage }}}} of the lease is left; two thirds are healthy. Call sites that take it:{SITES} \
             Look for a slow store (LockStoreSlow) or a starved process (LockWatchdogLate). A longer ttl helps only if neither can be \
             mended, and leaves the lock taken for longer after a crash."
        )),
        Alert::new(
            "LockRenewalsFailing",
            Severity::Warning,
            &with_backend(&format!(
                "sum by ({by_lock}) (rate(@renewals_total{{outcome!=\"ok\"}}[5m])) \
                 / (sum by ({by_lock}) (rate(@renewals_total[5m])) > 0) > 0.01"
            )),
            "{{ $value | humanizePercentage }} of the renewals of {{ $labels.lock }} fail",
        )
        .after("5m")
        .says(&format!(
            "{{{{ $value | humanizePercentage }}}} of the renewals of the lock {{{{ $labels.lock }}}} in \
             {{{{ $labels.job }}}} get no answer. They are tried again, but when the lease ends the lock is lost. Call \
             sites that take it:{SITES} Look at the store and the network."
        )),
        Alert::new(
            "LockWatchdogLate",
            Severity::Warning,
            &format!("histogram_quantile(0.99, sum by ({PROCESS}, le) (rate(@renewal_lateness_seconds_bucket[5m]))) > 1"),
            "The watchdog of {{ $labels.instance }} is {{ $value | humanizeDuration }} late",
        )
        .after("5m")
        .says(
            "Renewals in {{ $labels.instance }} ({{ $labels.job }}) are sent {{ $value | humanizeDuration }} later than \
             planned, for every lock that it holds. The process is starved, swaps, or its machine is paused. Locks with a \
             short ttl will be lost.",
        ),
    ]
}
