//! The current state: whose clock counts, who is stuck, who waits for whom, in which store.

use std::time::Duration;

use lock_core::{LockEvent, LockEventKind, LockObserver};
use lock_metrics::{MetricsHandle, builder};
use lock_testing::limit;

use crate::support::{Acquire, Scrape, eventually, holder};

const LOCK: &str = "lock:user:<user_id>";
const SECOND: Duration = Duration::from_secs(1);

fn scrape(metrics: &MetricsHandle) -> Scrape {
    Scrape::read(&metrics.render())
}

#[test]
#[limit]
fn ages_and_leases_are_differences_to_the_time_that_is_told() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let began = scrape(&metrics).get("start_timestamp_seconds", &[]);
    Acquire::new(&observer, 1, LOCK, "lock:user:1").take();
    let first = scrape(&metrics);
    let second = eventually("a later scrape", || {
        let later = scrape(&metrics);
        (later.get("now_timestamp_seconds", &[]) > first.get("now_timestamp_seconds", &[]) + 0.05).then_some(later)
    });
    for seen in [&first, &second] {
        let of = |name: &str| seen.get(name, &[("lock", LOCK)]);
        let now = seen.get("now_timestamp_seconds", &[]);
        let left = of("lease_min_expiry_timestamp_seconds") - now;
        assert!(left > 0.0 && left <= 10.0, "{left}");
        let age = now - of("oldest_hold_start_timestamp_seconds");
        assert!((-0.05..60.0).contains(&age), "{age}");
        assert!(now >= began && began > 1e9);
        assert!(now - seen.get("sampler_last_run_timestamp_seconds", &[]) < 60.0);
    }
    let start = "oldest_hold_start_timestamp_seconds";
    assert_eq!(first.get(start, &[("lock", LOCK)]), second.get(start, &[("lock", LOCK)]), "a hold begins once");
}

#[test]
#[limit]
fn stuck_counts_holds_by_the_threshold_of_their_own_site() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    for attempt in 0..50 {
        let mut quick = Acquire::new(&observer, attempt, LOCK, &format!("lock:user:{attempt}"));
        (quick.site, quick.stuck_after) = ("shop::quick", Duration::ZERO);
        quick.take();
    }
    let mut slow = Acquire::new(&observer, 50, LOCK, "lock:user:50");
    (slow.site, slow.stuck_after) = ("shop::slow", Duration::from_secs(7200));
    slow.take();
    let seen = scrape(&metrics);
    let stuck = |site| seen.get("stuck", &[("lock", LOCK), ("site", site)]);
    assert_eq!((stuck("shop::quick"), stuck("shop::slow")), (50.0, 0.0));
    assert_eq!(seen.get("stuck_after_seconds", &[("lock", LOCK), ("site", "shop::slow")]), 7200.0);
    slow.release(SECOND);
    assert_eq!(scrape(&metrics).get("held", &[("lock", LOCK)]), 50.0);
}

#[test]
#[limit]
fn a_wait_is_charged_while_it_lasts_also_behind_another_waiter() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let waits: Vec<_> = [(1, "lock:user:1"), (2, "lock:user:1"), (3, "lock:user:2")]
        .into_iter()
        .map(|(attempt, key)| {
            let wait = Acquire::new(&observer, attempt, LOCK, key);
            wait.send(LockEventKind::WaitStarted);
            wait
        })
        .collect();
    waits[1].send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    let seen = scrape(&metrics);
    let on = |name: &str, site| seen.get(name, &[("lock", LOCK), ("holder_site", site)]);
    assert_eq!((on("waiting_on", "shop::report"), on("waiting_on", "unknown")), (2.0, 1.0));
    let oldest = "waiting_on_oldest_start_timestamp_seconds";
    assert_eq!(on(oldest, "shop::report"), seen.get("oldest_wait_start_timestamp_seconds", &[("lock", LOCK)]));
    for wait in waits {
        wait.send(LockEventKind::Cancelled { waited: SECOND, holder: None });
    }
    let seen = scrape(&metrics);
    let on = |name: &str| seen.find(name, &[("lock", LOCK), ("holder_site", "shop::report")]);
    assert_eq!((on("waiting_on"), on(oldest)), (Some(0.0), Some(0.0)));
    assert_eq!(seen.find("waiting_on", &[("lock", LOCK), ("holder_site", "unknown")]), None);
}

#[test]
#[limit]
fn a_hold_that_lasts_counts_as_held_and_the_total_never_falls() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let hold = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    hold.take();
    let total = || scrape(&metrics).get("held_seconds_total", &[("lock", LOCK)]);
    let before = eventually("held for a while", || Some(total()).filter(|total| *total > 0.05));
    // Measured more exactly at its end, and found to be shorter.
    hold.release(Duration::from_millis(1));
    assert!(total() >= before, "{} {before}", total());
    let again = Acquire::new(&observer, 2, LOCK, "lock:user:1");
    again.take();
    again.release(9 * SECOND);
    assert!((total() - 9.0).abs() < 0.1, "{}", total());
}

#[test]
#[limit]
fn stores_are_told_apart() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    for (attempt, store, name) in [(1, "orders", LOCK), (2, "orders", LOCK), (3, "carts", LOCK), (4, "carts", "b")] {
        let hold = Acquire::new(&observer, attempt, name, &format!("key:{attempt}"));
        let mut event = LockEvent::new(attempt, &hold.label, &hold.key, hold.site, LockEventKind::WaitStarted);
        event.store = store;
        observer.on_event(&event);
        hold.acquired(lock_core::GrantPath::Uncontended, SECOND, None);
    }
    let seen = scrape(&metrics);
    let held = |lock, store| seen.find("held", &[("lock", lock), ("store", store)]);
    assert_eq!((held(LOCK, "orders"), held(LOCK, "carts")), (Some(2.0), Some(1.0)));
    assert_eq!((held("b", "orders"), held("b", "carts")), (None, Some(1.0)), "b was never in orders");
}

#[test]
#[limit]
fn a_wait_of_three_seconds_is_shown_as_one() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let wait = Acquire::new(&observer, 1, LOCK, "lock:user:1");
    wait.send(LockEventKind::WaitStarted);
    wait.send(LockEventKind::TimedOut { waited: Duration::from_millis(3004), holder: None });
    let seen = scrape(&metrics);
    let bucket = |le| seen.get("wait_seconds_bucket", &[("lock", LOCK), ("outcome", "failed"), ("le", le)]);
    assert_eq!((bucket("2.6"), bucket("3.1")), (0.0, 1.0));
}
