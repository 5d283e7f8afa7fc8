//! The alerts. Each names the lock, who holds it, and what to do; its runbook says the rest.

mod budget;
mod plumbing;
mod safety;

use super::rule::{Alert, Group, Rule, Severity};

/// The call sites of the alert's lock, for alerts whose series do not name one.
const SITES: &str = "{{ range query (printf \"count by (site) (@site_info{job=%q, lock=%q})\" \
                     $labels.job $labels.lock) | sortByLabel \"site\" }} {{ .Labels.site }};{{ end }}";

/// How many wait for the alert's lock, and where.
const WAITERS: &str = "{{ with query (printf \"sum by (instance) (@waiters{job=%q, lock=%q}) > 0\" \
                       $labels.job $labels.lock) | sortByLabel \"instance\" }}{{ range . }}\
                       {{ .Value | humanize }} in {{ .Labels.instance }}; {{ end }}{{ else }}nobody. {{ end }}";

pub(crate) fn groups() -> Vec<Group> {
    let group =
        |name, alerts: Vec<Alert>| Group { name, interval: None, rules: alerts.into_iter().map(Rule::Alert).collect() };
    vec![
        group("distributed_lock_stuck", stuck()),
        group("distributed_lock_safety", safety::alerts()),
        group("distributed_lock_plumbing", plumbing::alerts()),
        group("distributed_lock_budget", budget::alerts()),
    ]
}

/// Locks that do not come free.
fn stuck() -> Vec<Alert> {
    let older = "(time() - (@site_oldest_hold_start_timestamp_seconds > 0)) \
                 > on (job, instance, lock) group_left () @stuck_after_seconds";
    vec![
        Alert::new(
            "LockStuck",
            Severity::Warning,
            older,
            "{{ $labels.lock }} is stuck: {{ $labels.site }} in {{ $labels.instance }} holds it for \
             {{ $value | humanizeDuration }}",
        )
        .after("1m")
        .keep("2m")
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
             {{{{ $labels.site }}}} in {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}), longer than its stuck_after. \
             Waiting for it: {WAITERS}`lockctl list` and http://{{{{ $labels.instance }}}}/locks name the key and the \
             owner. Find out what the call site waits for; force the lock only as the runbook says."
        )),
        Alert::new(
            "LockStuckWithWaiters",
            Severity::Critical,
            &format!("({older}) and on (job, lock) (sum by (job, lock) (@waiters) > 0)"),
            "{{ $labels.lock }} is stuck and callers wait for it: {{ $labels.site }} in {{ $labels.instance }} holds it \
             for {{ $value | humanizeDuration }}",
        )
        .after("1m")
        .keep("2m")
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
             {{{{ $labels.site }}}} in {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}), and callers wait for it: {WAITERS}\
             `lockctl list` and http://{{{{ $labels.instance }}}}/locks name the key and the owner. Look at what the holder \
             does, then restart it or force the lock as the runbook says."
        )),
        Alert::new(
            "LockOrphanedHold",
            Severity::Warning,
            "(max by (lock) (@inspector_held{lock!=\"other\"}) > 0) unless on (lock) (sum by (lock) (@held) > 0)",
            "{{ $labels.lock }} is held in the store, but by no process that is scraped",
        )
        .after("5m")
        .says(
            "{{ $value | humanize }} keys of the lock {{ $labels.lock }} are held, and no scraped process says that it \
             holds one: the holder died, or is not scraped. `lockctl list` names keys, hosts and call sites (with --prefix, \
             also keys of other libraries). A key comes free when its lease ends; the runbook says when it is safe to be faster.",
        ),
        Alert::new(
            "LockWaitersPilingUp",
            Severity::Warning,
            "min_over_time(@waiters[5m]) > 10 and deriv(@waiters[10m]) > 0",
            "{{ $value | humanize }} callers in {{ $labels.instance }} wait for {{ $labels.lock }}, and more come",
        )
        .after("5m")
        .says(&format!(
            "At least {{{{ $value | humanize }}}} callers have been waiting for the lock {{{{ $labels.lock }}}} in \
             {{{{ $labels.instance }}}} for five minutes, and the queue grows. It is taken by:{SITES} The panel \"Who \
             makes them wait\" names the one to make faster."
        )),
        Alert::new(
            "LockAcquireTimeouts",
            Severity::Warning,
            "sum by (job, lock) (rate(@acquisitions_total{outcome=\"timeout\"}[5m])) \
             / (sum by (job, lock) (rate(@acquisitions_total[5m])) > 0.05) > 0.05",
            "{{ $value | humanizePercentage }} of the acquires of {{ $labels.lock }} in {{ $labels.job }} give up waiting",
        )
        .after("10m")
        .says(&format!(
            "{{{{ $value | humanizePercentage }}}} of the acquires of the lock {{{{ $labels.lock }}}} in \
             {{{{ $labels.job }}}} wait in vain. It is taken by:{SITES} Look whether one of them is stuck; else hold it \
             for less time, or split the key."
        )),
    ]
}
