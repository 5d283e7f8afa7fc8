//! Alerts on callers that wait too long or in vain.

use super::{SITES, happened};
use crate::generate::names::{LOCK, SERVICE, SITE, STORE, age, once, store_now};
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    let waiters = once("@waiting_on", ", holder_site");
    let oldest = age("waiting_on_oldest_start_timestamp_seconds");
    let within = within_its_time();
    let acquires = |outcomes: &str, window: &str| {
        let compared = if outcomes.contains('|') { "=~" } else { "=" };
        format!(
            "sum by ({SERVICE}, store, lock) (WINDOW(@acquisitions_total{{outcome{compared}\"{outcomes}\"}}[{window}]))"
        )
    };
    let rate = |outcomes| acquires(outcomes, "5m").replace("WINDOW", "rate");
    let increase = |outcomes| acquires(outcomes, "1h").replace("WINDOW", "increase");
    vec![
        Alert::new(
            "LockWaitersPilingUp",
            Severity::Warning,
            &format!(
                "min_over_time(({waiters})[5m:]) > <<manyWaiters>> and on ({LOCK}) \
                 (max by ({LOCK}) ({oldest}) > 5 or deriv(({waiters})[10m:]) > 0) \
                 and on ({LOCK}) (sum by ({LOCK}) (@waiting_on unless on ({LOCK}, holder_site) {within}) > <<manyWaiters>>)"
            ),
            "{{ $value | humanize }} callers wait for {{ $labels.lock }}, and do not become fewer",
        )
        .after("2m")
        .says(&format!(
            "At least {{{{ $value | humanize }}}} callers, in all processes together, have been waiting for the lock \
             {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} for five minutes, for seconds each or more and more of them. \
             Call sites that take it:{SITES} The panel \"Who makes them wait\" names the one to make faster."
        )),
        long_wait(),
        Alert::new(
            "LockAcquireTimeouts",
            Severity::Warning,
            &format!(
                "(({} / ({} > 0.05) > 0.05) or ({} / ({} > 2.5) > 0.99)) unless on ({LOCK}) {within}",
                rate("timeout"),
                rate("acquired|timeout|busy|cancelled|error"),
                increase("timeout|error"),
                increase("acquired|timeout|error"),
            ),
            "{{ $value | humanizePercentage }} of the acquires of {{ $labels.lock }} in {{ $labels.job }} give up waiting",
        )
        .after("10m")
        .says(&format!(
            "{{{{ $value | humanizePercentage }}}} of the acquires of the lock {{{{ $labels.lock }}}} in \
             {{{{ $labels.job }}}} do not get it, within the last minutes or, if it is taken seldom, within the last hour. \
             Call sites that take it:{SITES} Look whether one of them is stuck; else hold it for less time, or split the key."
        )),
        Alert::new(
            "LockDeadlock",
            Severity::Warning,
            &happened("deadlocks_total", 15, SERVICE),
            "Tasks of {{ $labels.job }} waited for each other in a cycle",
        )
        .says(
            "Tasks of {{ $labels.job }} held a lock and waited for one that another of them held. One gave way with the error \
             WouldDeadlock, so the others went on. The log names every lock of the cycle and its holder: take them in one order \
             everywhere, or together with lock_all.",
        ),
        Alert::new(
            "LockOrderInverted",
            Severity::Warning,
            &happened("order_inversions_total", 60, &format!("{SERVICE}, store, lock")),
            "{{ $labels.lock }} and another lock are taken in both orders",
        )
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is taken in {{{{ $labels.job }}}} under a lock that is also taken under it: two \
             callers can wait for each other. Call sites that take it:{SITES} The log names the other lock and both places; \
             take them in one order everywhere.",
        )),
    ]
}

/// The call sites that are waited for, but whose hold is younger than its own `stuck_after`, and has lasted for as long as
/// the oldest wait. Roles and jobs never name a time, so an hour stands for it. In a queue that moves, the oldest wait is
/// older than the hold.
fn within_its_time() -> String {
    let by = format!("{LOCK}, holder_site");
    let began = format!("min by ({by}) (@waiting_on_oldest_hold_start_timestamp_seconds > 0)");
    let age_of_hold = format!("({} - on ({STORE}) group_right () {began})", store_now());
    let wait = format!("max by ({by}) ({})", age("waiting_on_oldest_start_timestamp_seconds"));
    let promised = format!("max by ({SITE}) (last_over_time(@stuck_after_seconds[1d]))");
    let promised = format!("({promised} or on ({SITE}) max by ({SITE}) (last_over_time(@site_info[1d])) * 3600)");
    let promised = format!("max by ({by}) (label_replace({promised}, \"holder_site\", \"$1\", \"site\", \"(.*)\"))");
    format!("({age_of_hold} < on ({by}) {promised} and on ({by}) ({age_of_hold} + 15 > on ({by}) {wait}))")
}

/// Fires for a single caller, and for any holder. The holder may be another library, which exports no metrics.
fn long_wait() -> Alert {
    Alert::new(
        "LockWaitTooLong",
        Severity::Warning,
        &format!(
            "max by ({LOCK}, holder_site) ({}) > <<longWaitSeconds>> unless on ({LOCK}, holder_site) {}",
            age("waiting_on_oldest_start_timestamp_seconds"),
            within_its_time()
        ),
        "A caller has been waiting for {{ $labels.lock }} for {{ $value | humanizeDuration }}",
    )
    .keep("2m")
    .says(
        "A caller has been waiting for the lock {{ $labels.lock }} in {{ $labels.store }} for {{ $value | humanizeDuration }}. What \
         it waits for is held by {{ $labels.holder_site }} (a call site; `foreign` is another library). Waiting for it: \
         {{ range query (printf \"sum by (job) (@waiting_on{store=%q, lock=%q, holder_site=%q}) > 0\" $labels.store $labels.lock \
         $labels.holder_site) | sortByLabel \"job\" }}{{ .Value | humanize }} in {{ .Labels.job }}; {{ end }}`lockctl list` names the \
         key, `lockctl why KEY` its holder. If callers may wait so long, silence this alert for the lock.",
    )
}
