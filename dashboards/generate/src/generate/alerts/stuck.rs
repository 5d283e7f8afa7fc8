//! Alerts on locks that are not released.

use super::{SITES, WAITING};
use crate::generate::names::{LOCK, PROCESS, SERVICE, SITE, STORE, age, down, once, plain, store_now, twice};
use crate::generate::rule::{Alert, Rule, Severity};

/// How many callers wait for the alert's lock because of its call site, by service.
const WAITERS: &str = "{{ with query (printf \"sum by (job) (@waiting_on{store=%q, lock=%q, \
                       holder_site=%q}) > 0\" $labels.store $labels.lock $labels.site) \
                       | sortByLabel \"job\" }}{{ range . }}{{ .Value | humanize }} in {{ .Labels.job }}; \
                       {{ end }}{{ else }}nobody. {{ end }}";

/// The processes in which the alert's call site is stuck, each with its live view.
const HOLDERS: &str = "{{ with query (printf \"max by (job, instance) (@stuck{store=%q, lock=%q, site=%q}) > 0\" \
                       $labels.store $labels.lock $labels.site) | sortByLabel \"instance\" }}{{ range . }}\
                       {{ $labels := .Labels }}{{ .Labels.instance }} ({{ .Labels.job }}), <<liveViewUrl>>; \
                       {{ end }}{{ else }}a process that is not scraped now; of those that were: \
                       {{ range query (printf \"max by (job, instance) (last_over_time(\
                       @site_oldest_hold_start_timestamp_seconds{store=%q, lock=%q, site=%q}[15m])) > 0\" \
                       $labels.store $labels.lock $labels.site) | sortByLabel \"instance\" }}{{ .Labels.instance }} ({{ .Labels.job }}); \
                       {{ end }}{{ end }}";

/// The locks that callers wait for and that are held for too long, by call site, with their age.
const WAITED_FOR: &str = "store_lock_site:distributed_lock_stuck_with_waiters:age";

pub(crate) fn rules() -> Vec<Rule> {
    // Recorded before the alerts of this group read it.
    let recorded = Rule::Record { name: WAITED_FOR.to_owned(), expr: plain(&stuck_and_waited_for()) };
    let alerts = [stuck(), waited_for(), many_stuck(), command(), pinned(), silent(), orphaned()];
    [recorded].into_iter().chain(alerts.map(Rule::Alert)).collect()
}

/// Without `for`: an age already includes the wait, and one missed scrape would restart it. The last report of a
/// process counts until its next scrape, or until its leases must have ended.
fn stuck() -> Alert {
    let by = format!("{PROCESS}, store, lock, site");
    let now = format!("max by ({by}) {}", age("stuck_oldest_start_timestamp_seconds"));
    Alert::new(
        "LockStuck",
        Severity::Warning,
        &format!("{now} or (max_over_time(({now})[15m:30s]) and on ({PROCESS}) {})", down()),
        "{{ $labels.lock }} is stuck: {{ $labels.site }} in {{ $labels.instance }} holds it for \
         {{ $value | humanizeDuration }}",
    )
    .keep("2m")
    .says(&format!(
        "The lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
         {{{{ $labels.site }}}} in {{{{ $labels.instance }}}} ({{{{ $labels.job }}}}), longer than its stuck_after. \
         Waiting for this call site: {WAITERS}LIVE Find out what the call site waits for; force the lock only as the runbook says."
    ))
}

/// Three witnesses: the process that holds the lock, the processes that wait for exactly this hold, and the store. Each
/// alone is enough, so the page stays when the holder no longer reports.
fn stuck_and_waited_for() -> String {
    // The holder itself, for callers in the same process.
    let stuck = format!("max by ({SITE}) {}", age("stuck_oldest_start_timestamp_seconds"));
    let own = seen_twice("stuck_waiters");
    let told = format!("max_over_time(({stuck})[15m:30s])");
    let silent = format!(
        "(max by ({PROCESS}, store, lock, site) (last_over_time(@stuck_waiters[15m])) > 0 and on ({PROCESS}) {})",
        down()
    );
    // Its machine may be off: the store knows whether the lock is still taken. Without an inspector, the lease tells for
    // how long it may be.
    let silent = format!(
        "(({silent} and on ({LOCK}) {}) or ({silent} and on ({PROCESS}, store, lock) {} unless on ({STORE}) {}))",
        left_in_store(),
        lease_may_run(),
        inspected(),
    );
    // Waiters in other processes: the store told them when that hold began.
    let renamed = |series: &str| format!("label_replace({series}, \"site\", \"$1\", \"holder_site\", \"(.*)\")");
    let began = format!("min by ({LOCK}, holder_site) (@waiting_on_oldest_hold_start_timestamp_seconds > 0)");
    let age_of_waited = renamed(&format!("({} - on ({STORE}) group_right () {began})", store_now()));
    let others = renamed(&seen_twice("waiting_on_oldest_hold"));
    // The queues in the store, for the whole fleet.
    let age_in_store = age("inspector_waited_hold_start_timestamp_seconds");
    let queued = seen_twice("inspector_waited_hold_waiters");
    let threshold = format!("max by ({SITE}) (last_over_time(@stuck_after_seconds[1d]))");
    // Members of a shared lock came at different times, so their process tells the age of a stuck one. Waiters cannot
    // tell which member they wait for.
    let began_at = format!("max by ({LOCK}, holder_site) (@waiting_on_oldest_hold_start_timestamp_seconds)");
    let for_members = format!(
        "max by ({LOCK}) ({} unless on ({LOCK}, holder_site) {began_at})",
        seen_twice("waiting_on_oldest_hold")
    );
    // A command exports no threshold, but the inspector compares it.
    let queued_for_command = twice("@inspector_commands_stuck_waiters", "(@inspector_commands_stuck_waiters > 0)");
    let command = format!(
        "(max by ({SITE}) ({}) and on ({LOCK}) max by ({LOCK}) (@inspector_commands_stuck_waiters > 0 and {queued_for_command}))",
        age("inspector_waited_hold_start_timestamp_seconds").replace(
            "@inspector_waited_hold_start_timestamp_seconds",
            "@inspector_waited_hold_start_timestamp_seconds{site=~\"lockctl run .*\"}"
        ),
    );
    // A lock that is never freed has a page of its own.
    let unending = format!("max by ({LOCK}) (@inspector_keys_without_ttl) > 0");
    let older = |age: &str, waiters: &str| {
        format!("(max by ({SITE}) ({age}) > on ({SITE}) {threshold} and on ({SITE}) {waiters})")
    };
    format!(
        "(({stuck} and on ({SITE}) {own}) or {} or {} or ({stuck} and on ({LOCK}) {for_members}) or {command} \
             or ({told} and on ({SITE}) {silent})) unless on ({LOCK}) {unending}",
        older(&age_of_waited, &others),
        older(&age_in_store, &queued),
    )
}

/// Names the service that holds the lock, since teams route by it. If no holder is scraped, the service that waits.
fn waited_for() -> Alert {
    let one = |of: &str, value: &str| {
        format!("max by ({SERVICE}, {of}) (topk by ({of}) (1, max by ({SERVICE}, {of}) ({value})) * 0 + 1)")
    };
    let holder = one(SITE, "time() - (last_over_time(@site_oldest_hold_start_timestamp_seconds[15m]) > 0)");
    let waiter = one(&format!("{LOCK}, holder_site"), "@waiting_on > 0");
    let waiter =
        format!("max by ({SERVICE}, {SITE}) (label_replace({waiter}, \"site\", \"$1\", \"holder_site\", \"(.*)\"))");
    let named = |by: &str| format!("({by} * on ({SITE}) group_left () {WAITED_FOR})");
    Alert::new(
        "LockStuckWithWaiters",
        Severity::Critical,
        &format!("{} or on ({SITE}) {} or on ({SITE}) {WAITED_FOR}", named(&holder), named(&waiter)),
        "{{ $labels.lock }} is stuck and callers wait for it: {{ $labels.site }} holds it for {{ $value | humanizeDuration }}",
    )
    .keep("1m")
    .says(&format!(
        "The lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} is held for {{{{ $value | humanizeDuration }}}} by the call site \
         {{{{ $labels.site }}}}, in {HOLDERS}Callers wait for what it holds; waiting for this call site in all: {}\
         `lockctl list` names the key; `lockctl why KEY` says whether its holder lives, who waits, and whether it is safe to force. \
         Look at what the holder does, then restart it or force the lock as the runbook says.",
        WAITERS.replace("nobody. ", "nobody at this moment, since callers give up. "),
    ))
}

/// Many locks of one store that are stuck at once have one cause, such as a database that all of their holders call.
fn many_stuck() -> Alert {
    let locks = format!("count by ({STORE}) (max by ({LOCK}) ({WAITED_FOR}))");
    Alert::new(
        "LockManyStuck",
        Severity::Critical,
        &format!("{locks} >= <<manyLocks>>"),
        "{{ $value | humanize }} locks in {{ $labels.store }} are stuck at once, and callers wait for them",
    )
    .keep("1m")
    .says(&format!(
        "{{{{ $value | humanize }}}} locks in {{{{ $labels.store }}}} are held for too long at the same time, and callers wait for all of \
         them: one cause is likely, such as a database that their holders call. The oldest:{{{{ range query (printf \
         \"topk(3, max by (lock, site) ({WAITED_FOR}{{store=%q}}))\" $labels.store) }}}} {{{{ .Labels.lock }}}} by \
         {{{{ .Labels.site }}}} for {{{{ .Value | humanizeDuration }}}};{{{{ end }}}} Look at what these holders have in common. `lockctl list` \
         names the keys; `lockctl why KEY` says whether it is safe to force one."
    ))
}

/// A command under `lockctl run` exports no metrics. The inspector compares its age with its `--stuck-after`.
fn command() -> Alert {
    Alert::new(
        "LockCommandStuck",
        Severity::Warning,
        &format!("max by ({LOCK}) (@inspector_commands_stuck) > 0"),
        "{{ $labels.lock }} is held by a command under lockctl for longer than it said it would be",
    )
    .keep("2m")
    .says(&format!(
        "{{{{ $value | humanize }}}} commands under `lockctl run` have the lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} for longer \
         than their --stuck-after. Waiting: {WAITING}`lockctl list` names key, host and command (its call site); `lockctl why KEY` says who \
         waits, and whether it is safe to force. Look at what the command does on that host, and end it there."
    ))
}

/// An open transaction that has pinned a lock keeps it after its lease, and after a release.
fn pinned() -> Alert {
    let pin = age("inspector_oldest_pin_start_timestamp_seconds");
    Alert::new(
        "LockPinnedLong",
        Severity::Warning,
        &format!("max by ({LOCK}, session) ({pin}) > <<longPinSeconds>>"),
        "{{ $labels.lock }} is pinned by an open transaction of {{ $labels.session }} for {{ $value | humanizeDuration }}",
    )
    .keep("2m")
    .says(&format!(
        "A transaction has pinned the lock {{{{ $labels.lock }}}} in {{{{ $labels.store }}}} and has been open for \
         {{{{ $value | humanizeDuration }}}}: {{{{ $labels.session }}}}. Neither the end of the lease nor a release frees the lock before its \
         COMMIT or ROLLBACK. Waiting: {WAITING}Call sites that take it:{SITES} In psql, SELECT * FROM pg_stat_activity says what the session does, \
         and SELECT pg_terminate_backend(PID) ends it. `lockctl why KEY` names what ends the pin."
    ))
}

/// The call sites whose hold had waiters in two scrapes.
fn seen_twice(gauge: &str) -> String {
    let site = if gauge.starts_with("waiting_on") { "holder_site" } else { "site" };
    let more = format!("@{gauge} > 0");
    format!("max by ({LOCK}, {site}) ({more} and {})", twice(&format!("@{gauge}"), &format!("({more})")))
}

/// A process without scrapes cannot report that it is stuck. An ended process holds nothing for longer than its leases:
/// the store says so. Without an inspector, the scrape decides: a hanging process times out, and a process that is gone
/// refuses at once.
fn silent() -> Alert {
    let by = format!("{PROCESS}, store, lock");
    let held = |series: &str| format!("sum by ({by}) (max by ({by}, mode) ({series}))");
    let gone = format!("({} > 0 unless on ({by}) {})", held("last_over_time(@held[15m])"), held("@held"));
    let hangs = format!("({} and on ({PROCESS}) (min by ({PROCESS}) (<<scrape>>) > 0.5))", down());
    let (inspected, left) = (inspected(), left_in_store());
    Alert::new(
        "LockHolderSilent",
        Severity::Warning,
        &format!(
            "({gone} and on ({PROCESS}) {} and on ({LOCK}) {left}) \
             or ({gone} and on ({PROCESS}) {hangs} unless on ({STORE}) {inspected}) \
             or ({gone} unless on ({SERVICE}) @build_info and on ({LOCK}) {left})",
            down()
        ),
        "{{ $labels.instance }} held {{ $labels.lock }} at its last scrape, and has not been scraped since",
    )
    .after("2m")
    .says(
        "{{ $labels.instance }} ({{ $labels.job }}) held {{ $value | humanize }} keys of the lock {{ $labels.lock }} in \
         {{ $labels.store }} at its last scrape, and has not been scraped since: it hangs, it died, or its whole service is gone. \
         If it hangs it still holds them, and no other alert can show that. `lockctl list` names its keys and call sites; \
         `lockctl why KEY` says whether the holder still renews its lease.",
    )
}

/// The stores that an elected inspector reads.
pub(super) fn inspected() -> String {
    format!("max by ({STORE}) (@inspector_last_success_timestamp_seconds)")
}

/// The locks of which the store has more keys than the processes report.
fn left_in_store() -> String {
    format!("({} - on ({LOCK}) ({} or on ({LOCK}) 0 * {0}) > 0)", in_store("@inspector_held"), once("@held", ", mode"))
}

/// The locks of processes that have been silent for less than the length of a lease and a margin: a lease that they held
/// may still run.
pub(super) fn lease_may_run() -> String {
    let by = format!("{PROCESS}, store, lock");
    format!(
        "(time() - max by ({by}) (max_over_time((timestamp(@ttl_seconds))[15m:15s])) \
         < on ({by}) max by ({by}) (last_over_time(@ttl_seconds[15m])) + 60)"
    )
}

/// Keys in the store, by lock. During a new election two instances may report one store.
fn in_store(held: &str) -> String {
    let of_process = format!("{PROCESS}, store, lock");
    format!("max by ({LOCK}) (sum by ({of_process}) (max by ({of_process}, mode) ({held})))")
}

/// Locks in the store that no process reports, for each store.
fn orphaned() -> Alert {
    // Commands under `lockctl run` are not scraped, so they are not missing.
    let commands = format!("max by ({LOCK}) (max_over_time(@inspector_commands[2m]))");
    let all = in_store("min_over_time(@inspector_held{lock!=\"other\"}[2m])");
    let held = format!("({all} - on ({LOCK}) {commands} or on ({LOCK}) {all})");
    let by_processes = once("max_over_time(@held[2m])", ", mode");
    let old = format!("max by ({LOCK}) ({}) > 3600", age("inspector_oldest_hold_start_timestamp_seconds"));
    // Three cases. The store has more locks than the processes report. No process of this store knows the name. No
    // process reports on the store at all: then only the age can show a problem.
    // Processes with too many names count some of these locks as other.
    let unnamed = format!("(max by ({STORE}) (@held{{lock=\"other\"}}) > 0)");
    let more = format!("{held} - on ({LOCK}) {by_processes} > 0");
    let unknown = format!("({held} > 0 unless on ({LOCK}) @held) and on ({STORE}) @held");
    let unseen = format!("({held} > 0 and on ({LOCK}) ({old})) unless on ({STORE}) @held");
    Alert::new(
        "LockOrphanedHold",
        Severity::Warning,
        &format!("(({more}) or ({unknown}) or ({unseen})) unless on ({STORE}) {unnamed}"),
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
