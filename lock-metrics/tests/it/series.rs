//! Streams of events, and the exact series that they produce.

use std::time::Duration;

use lock_core::{FencingToken, GrantPath, Holder, LockError, LockEventKind, LockObserver, LossReason, Mode, Notice};
use lock_metrics::builder;
use lock_testing::limit;

use crate::support::{Acquire, Scrape, holder};

const LOCK: &str = "lock:user:<user_id>";
const SECOND: Duration = Duration::from_secs(1);

#[test]
#[limit]
fn a_plain_acquire_and_release() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let acquire = Acquire::new(&observer, 1, LOCK, "lock:user:42");
    acquire.send(LockEventKind::WaitStarted);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.moved(LOCK), ["waiters{} 1", "waiting_on{unknown} 1"]);
    assert!(scrape.get("oldest_wait_start_timestamp_seconds", &[("lock", LOCK)]) > 1e9);
    acquire.acquired(GrantPath::Uncontended, Duration::from_millis(2), None);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(
        scrape.moved(LOCK),
        [
            "acquisitions_total{acquired} 1",
            "grants_total{uncontended} 1",
            "held{} 1",
            "wait_seconds_count{acquired} 1",
            "wait_seconds_sum{acquired} 0.002",
        ],
    );
    assert_eq!(scrape.get("oldest_wait_start_timestamp_seconds", &[("lock", LOCK)]), 0.0);
    let start = scrape.get("oldest_hold_start_timestamp_seconds", &[("lock", LOCK)]);
    let expiry = scrape.get("lease_min_expiry_timestamp_seconds", &[("lock", LOCK)]);
    assert!((expiry - start - 10.0).abs() < 0.001, "{start} {expiry}");
    assert_eq!(scrape.get("ttl_seconds", &[("lock", LOCK)]), 10.0);
    assert_eq!(scrape.get("stuck_after_seconds", &[("lock", LOCK)]), 60.0);
    assert_eq!(scrape.get("site_info", &[("lock", LOCK), ("site", "shop::charge")]), 1.0);
    acquire.release(3 * SECOND);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(
        scrape.moved(LOCK),
        [
            "acquisitions_total{acquired} 1",
            "grants_total{uncontended} 1",
            "hold_seconds_count{} 1",
            "hold_seconds_sum{} 3",
            "releases_total{released} 1",
            "wait_seconds_count{acquired} 1",
            "wait_seconds_sum{acquired} 0.002",
        ],
    );
    for gauge in ["oldest_hold_start_timestamp_seconds", "lease_min_expiry_timestamp_seconds"] {
        assert_eq!(scrape.get(gauge, &[("lock", LOCK)]), 0.0, "{gauge}");
    }
    let bucket = |le| scrape.get("hold_seconds_bucket", &[("lock", LOCK), ("le", le)]);
    assert_eq!([bucket("2.5"), bucket("5"), bucket("+Inf")], [0.0, 1.0, 1.0]);
}

#[test]
#[limit]
fn a_wait_is_charged_to_the_site_that_held() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let slow = holder("shop::report");
    let acquire = Acquire::new(&observer, 1, LOCK, "lock:user:42");
    acquire.send(LockEventKind::WaitStarted);
    acquire.send(LockEventKind::Contended { holder: Some(&slow) });
    acquire.acquired(GrantPath::Granted, 2 * SECOND, Some(&slow));
    acquire.release(SECOND);
    let other = Acquire::new(&observer, 2, LOCK, "lock:user:42");
    other.send(LockEventKind::WaitStarted);
    let foreign = Holder::foreign(None);
    other.send(LockEventKind::TimedOut { waited: 5 * SECOND, holder: Some(&foreign) });
    let third = Acquire::new(&observer, 3, LOCK, "lock:user:42");
    third.send(LockEventKind::WaitStarted);
    third.send(LockEventKind::Cancelled { waited: SECOND, holder: Some(&slow) });
    assert_eq!(
        Scrape::read(&metrics.render()).moved(LOCK),
        [
            "acquisitions_total{acquired} 1",
            "acquisitions_total{cancelled} 1",
            "acquisitions_total{timeout} 1",
            "blocked_seconds_count{foreign} 1",
            "blocked_seconds_count{shop::report} 2",
            "blocked_seconds_sum{foreign} 5",
            "blocked_seconds_sum{shop::report} 3",
            "grants_total{granted} 1",
            "hold_seconds_count{} 1",
            "hold_seconds_sum{} 1",
            "releases_total{released} 1",
            "wait_seconds_count{acquired} 1",
            "wait_seconds_count{failed} 2",
            "wait_seconds_sum{acquired} 2",
            "wait_seconds_sum{failed} 6",
            "waiting_on_oldest_hold{foreign} 1",
        ],
    );
}

#[test]
#[limit]
fn modes_are_told_apart() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    for (attempt, mode) in [Mode::READ, Mode::READ, Mode::permits(1, 4).unwrap()].into_iter().enumerate() {
        let acquire = Acquire::new(&observer, attempt as u64, LOCK, "lock:user:1").in_mode(mode);
        acquire.send(LockEventKind::WaitStarted);
        if attempt > 0 {
            acquire.acquired(GrantPath::Shared, SECOND, None);
        }
        if attempt > 1 {
            acquire.release(SECOND);
        }
    }
    let scrape = Scrape::read(&metrics.render());
    let of = |name: &str, mode: &str| scrape.get(name, &[("lock", LOCK), ("mode", mode)]);
    assert_eq!(["write", "read", "permit"].map(|mode| of("held", mode)), [0.0, 1.0, 0.0]);
    assert_eq!(["write", "read", "permit"].map(|mode| of("waiters", mode)), [0.0, 1.0, 0.0]);
    let acquired = |mode| scrape.get("acquisitions_total", &[("lock", LOCK), ("outcome", "acquired"), ("mode", mode)]);
    assert_eq!(["write", "read", "permit"].map(acquired), [0.0, 1.0, 1.0]);
    assert_eq!(["write", "read", "permit"].map(|mode| of("hold_seconds_count", mode)), [0.0, 0.0, 1.0]);
    assert_eq!(scrape.get("grants_total", &[("lock", LOCK), ("path", "shared")]), 2.0);
    assert_eq!(scrape.get("permits_limit", &[("lock", LOCK), ("site", "shop::charge")]), 4.0);
    // A lock that nobody shares has one mode.
    let alone = Acquire::new(&observer, 9, "alone", "alone");
    alone.take();
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("held", &[("lock", "alone"), ("mode", "write")]), 1.0);
    assert_eq!(scrape.find("held", &[("lock", "alone"), ("mode", "read")]), None);
}

#[test]
#[limit]
fn refusals_and_errors() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let busy = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    busy.send(LockEventKind::WaitStarted);
    busy.send(LockEventKind::Busy { waited: SECOND, holder: Some(&holder("shop::report")) });
    let failed = Acquire::new(&observer, 2, LOCK, "lock:user:2");
    failed.send(LockEventKind::WaitStarted);
    failed.send(LockEventKind::Failed { waited: SECOND, error: &LockError::unavailable("no") });
    assert_eq!(
        Scrape::read(&metrics.render()).moved(LOCK),
        [
            "acquisitions_total{busy} 1",
            "acquisitions_total{error} 1",
            "wait_seconds_count{failed} 1",
            "wait_seconds_sum{failed} 1",
        ],
    );
}

#[test]
#[limit]
fn renewals_and_every_end() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let ends = [
        LockEventKind::Released { held: SECOND, dropped: false, confirmed: true },
        LockEventKind::Released { held: SECOND, dropped: true, confirmed: true },
        LockEventKind::Released { held: SECOND, dropped: true, confirmed: false },
        LockEventKind::Abandoned { held: SECOND },
        LockEventKind::Lost { held: SECOND, reason: LossReason::Stolen },
        LockEventKind::Lost { held: SECOND, reason: LossReason::MaxHold },
        // An operator stopped the process, which released its locks: an alert would be wrong.
        LockEventKind::Lost { held: SECOND, reason: LossReason::ShutDown },
    ];
    for (attempt, end) in (1..).zip(ends) {
        let acquire = Acquire::new(&observer, attempt, LOCK, "lock:user:1");
        acquire.take();
        acquire.renew(Duration::from_secs(6), Duration::from_secs(10));
        acquire.send(LockEventKind::RenewFailed { error: &LockError::unavailable("no"), lease_left: SECOND });
        acquire.send(end);
    }
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(
        scrape.moved(LOCK),
        [
            "acquisitions_total{acquired} 7",
            "grants_total{uncontended} 7",
            "hold_seconds_count{} 7",
            "hold_seconds_sum{} 7",
            "lease_remaining_ratio_count{} 7",
            "lease_remaining_ratio_sum{} 4.2",
            "lost_total{max_hold} 1",
            "lost_total{stolen} 1",
            "releases_total{abandoned} 1",
            "releases_total{dropped} 1",
            "releases_total{released} 1",
            "releases_total{shut_down} 1",
            "releases_total{unconfirmed} 1",
            "renewals_total{error} 7",
            "renewals_total{ok} 7",
            "wait_seconds_count{acquired} 7",
            "wait_seconds_sum{acquired} 0.014",
        ],
    );
    assert_eq!(scrape.get("renewal_lateness_seconds_count", &[]), 7.0);
}

#[test]
#[limit]
fn a_renewal_moves_the_expiry() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let acquire = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    acquire.take();
    let expiry = || Scrape::read(&metrics.render()).get("lease_min_expiry_timestamp_seconds", &[("lock", LOCK)]);
    let before = expiry();
    acquire.renew(SECOND, 100 * SECOND);
    let moved = expiry() - before;
    assert!((80.0..=100.0).contains(&moved), "{moved}");
}

#[test]
#[limit]
fn what_is_left_of_a_lease_is_a_share_of_what_was_granted_and_raising_a_short_grant_is_no_renewal() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let mut acquire = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    acquire.ttl = 30 * SECOND;
    acquire.take();
    // A queue grants three seconds, which the first answer raises to what was asked for.
    let (lease_was_left, lease_left, lateness) = (2 * SECOND, 30 * SECOND, SECOND);
    acquire.send(LockEventKind::Renewed { lease: 3 * SECOND, lease_was_left, lease_left, lateness });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("lease_remaining_ratio_count", &[("lock", LOCK)]), 0.0);
    assert_eq!(scrape.get("renewals_total", &[("lock", LOCK), ("outcome", "ok")]), 0.0);
    assert_eq!(scrape.get("renewal_lateness_seconds_count", &[]), 0.0);
    let start = scrape.get("oldest_hold_start_timestamp_seconds", &[("lock", LOCK)]);
    let expiry = scrape.get("lease_min_expiry_timestamp_seconds", &[("lock", LOCK)]);
    assert!(expiry - start >= 30.0, "the lease is longer from here on: {start} {expiry}");
    acquire.renew(18 * SECOND, 30 * SECOND);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("lease_remaining_ratio_sum", &[("lock", LOCK)]), 0.6);
    assert_eq!(scrape.get("renewals_total", &[("lock", LOCK), ("outcome", "ok")]), 1.0);
}

#[test]
#[limit]
fn a_nested_grant_is_no_second_hold() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let outer = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    outer.take();
    let inner = Acquire::new(&observer, 2, LOCK, "lock:user:1");
    inner.send(LockEventKind::WaitStarted);
    inner.acquired(GrantPath::Reentrant, Duration::ZERO, None);
    assert_eq!(Scrape::read(&metrics.render()).get("held", &[("lock", LOCK)]), 1.0);
    inner.release(SECOND);
    outer.release(2 * SECOND);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("grants_total", &[("lock", LOCK), ("path", "reentrant")]), 1.0);
    assert_eq!(scrape.get("hold_seconds_count", &[("lock", LOCK)]), 1.0);
    assert_eq!(scrape.get("hold_seconds_sum", &[("lock", LOCK)]), 2.0);
}

#[test]
#[limit]
fn notices() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let label = LOCK.into();
    let (token, newest, node) = (FencingToken::new(1), FencingToken::new(2), "redis:6379");
    let error = LockError::unavailable("reset");
    observer.on_notice(&Notice::UnlockedRun { label: &label, store: "memory" });
    observer.on_notice(&Notice::FencingRejected { token, newest });
    observer.on_notice(&Notice::FencingRegressed { label: &label, store: "memory", token, newest });
    observer.on_notice(&Notice::Command { op: "acquire", node, elapsed: SECOND, error: None });
    observer.on_notice(&Notice::Command { op: "renew", node, elapsed: SECOND, error: Some(&error) });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.moved(LOCK), ["fencing_regressions_total{} 1", "unlocked_runs_total{} 1"]);
    assert_eq!(scrape.get("fencing_rejections_total", &[]), 1.0);
    assert_eq!(scrape.get("backend_command_seconds_count", &[("op", "acquire"), ("backend", node)]), 1.0);
    let errors = |op, kind| scrape.get("backend_errors_total", &[("op", op), ("backend", node), ("kind", kind)]);
    assert_eq!([errors("renew", "unavailable"), errors("renew", "misconfigured")], [1.0, 0.0]);
    assert_eq!(errors("acquire", "unavailable"), 0.0, "another kind of command");
    // No event about the connection was sent, so no state is exported.
    assert_eq!(scrape.find("backend_connected", &[("backend", node)]), None);
    observer.on_notice(&Notice::Connection { node, up: true });
    assert_eq!(Scrape::read(&metrics.render()).get("backend_connected", &[("backend", node)]), 1.0);
    observer.on_notice(&Notice::Connection { node, up: false });
    observer.on_notice(&Notice::EvictionPolicy { node, policy: "allkeys-lru" });
    observer.on_notice(&Notice::EvictionPolicy { node, policy: "volatile-ttl" });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("backend_connected", &[("backend", node)]), 0.0);
    let policy = |policy| scrape.find("backend_eviction_policy_info", &[("backend", node), ("policy", policy)]);
    assert_eq!([policy("allkeys-lru"), policy("volatile-ttl")], [None, Some(1.0)]);
    observer.on_notice(&Notice::EvictionPolicy { node, policy: "noeviction" });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.find("backend_eviction_policy_info", &[("backend", node)]), None, "what is over is absent");
    assert_eq!(scrape.find("replicas", &[("backend", node)]), None, "nobody has said how many");
    let second = Duration::from_secs(1);
    for (replicas, enough) in [(2, true), (1, false)] {
        observer.on_notice(&Notice::Failover { node });
        observer.on_notice(&Notice::Moved { node });
        observer.on_notice(&Notice::Replication { node, replicas, min_replicas: 1 });
        observer.on_notice(&Notice::FailoverExposure { node, exposed: enough });
        observer.on_notice(&Notice::Confirmation { node, replicas: enough, elapsed: second, enough });
    }
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("failovers_total", &[("backend", node)]), 2.0);
    assert_eq!(scrape.get("topology_changes_total", &[("backend", node), ("change", "master_moved")]), 2.0);
    assert_eq!(scrape.get("replicas", &[("backend", node)]), 1.0);
    assert_eq!(scrape.get("min_replicas", &[("backend", node)]), 1.0);
    assert_eq!(scrape.get("failover_exposed", &[("backend", node)]), 0.0);
    let confirmed = |by| scrape.get("confirm_seconds_count", &[("backend", node), ("by", by)]);
    assert_eq!(["replicas", "disk"].map(confirmed), [1.0, 1.0]);
    assert_eq!(scrape.get("confirm_shortfalls_total", &[("backend", node)]), 1.0);
    observer.on_notice(&Notice::SlotsMoved { node, times: 2 });
    observer.on_notice(&Notice::SlotsMoved { node, times: 3 });
    observer.on_notice(&Notice::Redirected { node, kind: "ask", times: 2 });
    observer.on_notice(&Notice::Redirected { node, kind: "ask", times: 1 });
    observer.on_notice(&Notice::Redirected { node, kind: "unheard of", times: 1 });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("topology_changes_total", &[("backend", node), ("change", "slots")]), 5.0);
    let redirections = |kind| scrape.get("redirections_total", &[("backend", node), ("kind", kind)]);
    assert_eq!(["moved", "ask", "try_again", "no_master"].map(redirections), [0.0, 3.0, 0.0, 0.0]);
    assert_eq!(scrape.find("slots_open", &[("backend", node)]), None, "nobody has said how many");
    for slots in [2, 1] {
        observer.on_notice(&Notice::SlotsOpen { node, slots });
        assert_eq!(Scrape::read(&metrics.render()).get("slots_open", &[("backend", node)]), f64::from(slots));
    }
    observer.on_notice(&Notice::NodeLeft { node });
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.find("backend_connected", &[("backend", node)]), None, "a node that left is not down");
    assert_eq!(scrape.find("replicas", &[("backend", node)]), None);
    assert_eq!(scrape.find("slots_open", &[("backend", node)]), None);
}

#[test]
#[limit]
fn an_observer_that_comes_late_misses_only_what_was_before() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let waiting = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    waiting.send(LockEventKind::Contended { holder: None });
    waiting.acquired(GrantPath::Polled, SECOND, None);
    let holding = Acquire::new(&observer, 2, LOCK, "lock:user:2");
    holding.renew(SECOND, SECOND);
    assert_eq!(Scrape::read(&metrics.render()).get("held", &[("lock", LOCK)]), 1.0);
    holding.release(SECOND);
    waiting.release(SECOND);
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("held", &[("lock", LOCK)]), 0.0);
    assert_eq!(scrape.get("hold_seconds_count", &[("lock", LOCK)]), 2.0);
}
