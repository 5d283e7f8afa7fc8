//! Alerts on too many slow waits. The goal is 99 % within 250 ms, over a month.

use super::SITES;
use crate::generate::names::SERVICE;
use crate::generate::recording::{answered, slow_share};
use crate::generate::rule::{Alert, Severity};

/// The share of waits that may be slow.
const BUDGET: &str = "<<slowWaits>>";

pub(crate) fn alerts() -> Vec<Alert> {
    // At a burn rate of 14.4 the budget of a month lasts two days. At 6 it lasts five days, at 3 ten days, and at 1 the
    // whole month. Slow waits cost time and not data, so the alert never wakes a person.
    vec![burn(&[("14.4", "1h", "5m"), ("6", "6h", "30m"), ("3", "1d", "2h"), ("1", "3d", "6h")]).after("2m")]
}

/// The long window shows that the problem matters, the short one that it continues. A lock younger than the short
/// window does not count: its first minutes would stand for both windows. Neither does one that was idle until then, such
/// as that of a migration for which all replicas waited once.
fn burn(windows: &[(&str, &str, &str)]) -> Alert {
    let busy = answered("5m");
    let conditions: Vec<String> = windows
        .iter()
        .map(|(factor, long, short)| {
            let (all, now) = (slow_share(long), slow_share(short));
            format!("({all} > {factor} * {BUDGET} and {now} > {factor} * {BUDGET} and {busy} offset {short} > 0)")
        })
        .collect();
    let template = format!("({}) and on ({SERVICE}, store, lock) {busy} > 0.05", conditions.join(" or "));
    let summary = "{{ $labels.lock }} is slow to get, and uses up the month's budget of slow waits";
    Alert::new("LockWaitBudgetBurn", Severity::Warning, &template, summary).says(&format!(
        "{{{{ $value | humanizePercentage }}}} of the waits for the lock {{{{ $labels.lock }}}} in {{{{ $labels.job }}}} \
         took more than 250 ms or failed; the goal is at most 1 %. Call sites that take it:{SITES} The panel \"Who makes \
         them wait\" names the one to make faster. If the lock is meant to queue, silence this alert for it."
    ))
}
