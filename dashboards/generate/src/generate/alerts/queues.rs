//! Alerts on callers that wait too long, or in vain.

use super::{SITES, happened};
use crate::generate::names::{SERVICE, age};
use crate::generate::rule::{Alert, Severity};

pub(crate) fn alerts() -> Vec<Alert> {
    let by = "cluster, store, lock";
    let waiters = format!("(sum by ({by}) (@waiting_on))");
    let oldest = age("waiting_on_oldest_start_timestamp_seconds");
    let acquires = |outcomes: &str, window: &str| {
        format!("sum by ({SERVICE}, lock) (WINDOW(@acquisitions_total{{outcome=~\"{outcomes}\"}}[{window}]))")
    };
    let rate = |outcomes| acquires(outcomes, "5m").replace("WINDOW", "rate");
    let increase = |outcomes| acquires(outcomes, "1h").replace("WINDOW", "increase");
    vec![
        Alert::new(
            "LockWaitersPilingUp",
            Severity::Warning,
            &format!(
                "min_over_time({waiters}[5m:]) > 10 and on ({by}) \
                 (max by ({by}) ({oldest}) > 5 or deriv({waiters}[10m:]) > 0)"
            ),
            "{{ $value | humanize }} callers wait for {{ $labels.lock }}, and do not become fewer",
        )
        .after("2m")
        .says(&format!(
            "At least {{{{ $value | humanize }}}} callers, in all processes together, have been waiting for the lock \
             {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} for five minutes, for seconds each or more and more of them. \
             Call sites that take it:{SITES} The panel \"Who makes them wait\" names the one to make faster."
        )),
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
            &happened("order_inversions_total", 60, &format!("{SERVICE}, lock")),
            "{{ $labels.lock }} and another lock are taken in both orders",
        )
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is taken in {{{{ $labels.job }}}} under a lock that is also taken under it: two \
             callers can wait for each other. Call sites that take it:{SITES} The log names the other lock and both places; \
             take them in one order everywhere.",
        )),
    ]
}
