//! Alerts on callers that wait too long or in vain.

use super::{SITES, happened};
use crate::generate::names::{LOCK, SERVICE, age, once};
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    let waiters = once("@waiting_on", ", holder_site");
    let oldest = age("waiting_on_oldest_start_timestamp_seconds");
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
                 (max by ({LOCK}) ({oldest}) > 5 or deriv(({waiters})[10m:]) > 0)"
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
                "({} / ({} > 0.05) > 0.05) or ({} / ({} > 2.5) > 0.99)",
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

/// Fires for a single caller, and for any holder. The holder may be another library, which exports no metrics.
fn long_wait() -> Alert {
    Alert::new(
        "LockWaitTooLong",
        Severity::Warning,
        &format!("max by ({LOCK}, holder_site) ({}) > <<longWaitSeconds>>", age("waiting_on_oldest_start_timestamp_seconds")),
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
