//! Alerts on locks that are not released.

use crate::generate::names::{PROCESS, SERVICE, age};
use crate::generate::rule::{Alert, Severity};

/// How many callers wait for the alert's lock because of its call site, and in which service.
const WAITERS: &str = "{{ with query (printf \"sum by (job) (@waiting_on{cluster=%q, store=%q, lock=%q, \
                       holder_site=%q}) > 0\" $labels.cluster $labels.store $labels.lock $labels.site) \
                       | sortByLabel \"job\" }}{{ range . }}{{ .Value | humanize }} in {{ .Labels.job }}; \
                       {{ end }}{{ else }}nobody. {{ end }}";

pub(crate) fn alerts() -> Vec<Alert> {
    // No `for`: an age already includes waiting, and one missed scrape would start it again.
    let stuck = format!("({} and (@stuck > 0))", age("site_oldest_hold_start_timestamp_seconds"));
    let waited_for = "label_replace(sum by (cluster, store, lock, holder_site) (@waiting_on) > 0, \
                      \"site\", \"$1\", \"holder_site\", \"(.*)\")";
    vec![
        Alert::new(
            "LockStuck",
            Severity::Warning,
            &stuck,
            "{{ $labels.lock }} is stuck: {{ $labels.site }} in {{ $labels.instance }} holds it for \
             {{ $value | humanizeDuration }}",
        )
        .keep("2m")
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
             {{{{ $labels.site }}}} in {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}), longer than its stuck_after. \
             Waiting for it: {WAITERS}LIVE Find out what the call site waits for; force the lock only as the runbook says."
        )),
        Alert::new(
            "LockStuckWithWaiters",
            Severity::Critical,
            &format!("{stuck} and on (cluster, store, lock, site) {waited_for}"),
            "{{ $labels.lock }} is stuck and callers wait for it: {{ $labels.site }} in {{ $labels.instance }} holds it \
             for {{ $value | humanizeDuration }}",
        )
        .keep("2m")
        .says(&format!(
            "The lock {{{{ $labels.lock }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
             {{{{ $labels.site }}}} in {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}), and callers wait for it: {WAITERS}\
             LIVE Look at what the holder does, then restart it or force the lock as the runbook says."
        )),
        silent(),
        orphaned(),
    ]
}

/// A process that exports nothing any more cannot report that it is stuck.
fn silent() -> Alert {
    let gone = "((last_over_time(@held[15m]) > 0) unless @held)";
    Alert::new(
        "LockHolderSilent",
        Severity::Warning,
        &format!("({gone} and on ({PROCESS}) (up == 0)) or ({gone} unless on ({SERVICE}) @build_info)"),
        "{{ $labels.instance }} held {{ $labels.lock }} at its last scrape, and has not been scraped since",
    )
    .after("2m")
    .says(
        "{{ $labels.instance }} ({{ $labels.job }}) held {{ $value | humanize }} keys of the lock {{ $labels.lock }} at its \
         last scrape, and has not been scraped since: it hangs, it died, or its whole service is gone. If it hangs it still \
         holds them, and no other alert can show that. `lockctl list` names its keys and call sites; `lockctl why KEY` \
         says whether the holder still renews its lease.",
    )
}

/// Locks that the store has and no process reports, store by store.
fn orphaned() -> Alert {
    let by = "cluster, store, lock";
    let of_process = format!("{PROCESS}, store, lock");
    let held = format!("max by ({by}) (sum by ({of_process}) (min_over_time(@inspector_held{{lock!=\"other\"}}[2m])))");
    let old = format!("{} > 3600", age("inspector_oldest_hold_start_timestamp_seconds"));
    // Three cases: more locks than the processes report; a name that no process of this store
    // knows; a store for which no process reports anything, where only the age can show that
    // something is wrong.
    let more = format!("{held} - on ({by}) sum by ({by}) (max_over_time(@held[2m])) > 0");
    let unknown = format!("({held} > 0 unless on ({by}) @held) and on (cluster, store) @held");
    let unseen = format!("({held} > 0 and on ({by}) ({old})) unless on (cluster, store) @held");
    Alert::new(
        "LockOrphanedHold",
        Severity::Warning,
        &format!("({more}) or ({unknown}) or ({unseen})"),
        "{{ $labels.lock }} is held in {{ $labels.store }}, but by no process that is scraped",
    )
    .after("3m")
    .says(
        "{{ $value | humanize }} keys of the lock {{ $labels.lock }} are held in {{ $labels.store }} beyond those that \
         scraped processes report: the holder died, or is not scraped. `lockctl list` names keys, hosts and call sites \
         (with --prefix, also keys of other libraries); `lockctl why KEY` says whether the holder still renews its lease. \
         A key becomes free when its lease ends; the runbook says when it is safe to free it earlier.",
    )
}
