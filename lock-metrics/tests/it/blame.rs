//! Waits are charged by key: one call site holds many keys, and only some of them block a waiter.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lock_core::{GrantPath, Holder, LockEventKind, LockManager, LockObserver, MemoryStore, Wait};
use lock_metrics::builder;
use lock_testing::limit;

use crate::support::{Acquire, Scrape, eventually, holder};

const LOCK: &str = "lock:user:<user_id>";
const SECOND: Duration = Duration::from_secs(1);

/// A holder that has written down since when.
fn seen(site: &str) -> Holder {
    let mut holder = holder(site);
    holder.since = Some(UNIX_EPOCH + Duration::from_secs(1_900_000_000));
    holder
}

fn waiting<'a, O: LockObserver>(observer: &'a O, attempt: u64, key: &str, holder: &Holder) -> Acquire<'a, O> {
    // Long after a millisecond: half of its own limit.
    let mut wait = Acquire::new(observer, attempt, LOCK, key);
    wait.wait_limit = Some(Duration::from_millis(2));
    wait.send(LockEventKind::WaitStarted);
    wait.send(LockEventKind::Contended { holder: Some(holder) });
    wait
}

#[test]
#[limit]
fn a_stuck_hold_counts_those_who_wait_for_its_key_and_nobody_else() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    // One hold is stuck and in nobody's way; the same call site holds another key, for which five wait.
    let mut stuck = Acquire::new(&observer, 1, LOCK, "lock:user:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    Acquire::new(&observer, 2, LOCK, "lock:user:busy").take();
    let _busy: Vec<_> =
        (10..15).map(|attempt| waiting(&observer, attempt, "lock:user:busy", &seen("shop::charge"))).collect();
    let of =
        |name: &str, label: &str| Scrape::read(&metrics.render()).get(name, &[("lock", LOCK), (label, "shop::charge")]);
    eventually("the waits are long", || (of("waiting_on_oldest_hold", "holder_site") == 5.0).then_some(()));
    assert_eq!(
        (of("stuck", "site"), of("stuck_waiters", "site")),
        (1.0, 0.0),
        "nobody waits for the one that is stuck"
    );
    assert_eq!(of("waiting_on", "holder_site"), 5.0);
    // Every waiter is counted, also one that is queued behind another and has not seen a holder.
    let _one = waiting(&observer, 20, "lock:user:stuck", &seen("shop::charge"));
    let mut behind = Acquire::new(&observer, 21, LOCK, "lock:user:stuck");
    behind.wait_limit = Some(Duration::from_millis(2));
    behind.send(LockEventKind::WaitStarted);
    eventually("two wait for it", || (of("stuck_waiters", "site") == 2.0).then_some(()));
    // The same key in another store is another lock.
    let elsewhere = Acquire::new(&observer, 22, LOCK, "lock:user:stuck").in_store("elsewhere");
    elsewhere.send(LockEventKind::WaitStarted);
    let scraped = Scrape::read(&metrics.render());
    let site = [("lock", LOCK), ("site", "shop::charge"), ("store", "memory")];
    assert_eq!(scraped.get("stuck_waiters", &site), 2.0);
    // The age to tell is that of the hold that is stuck.
    let oldest = scraped.get("stuck_oldest_start_timestamp_seconds", &site);
    assert_eq!(oldest, scraped.get("site_oldest_hold_start_timestamp_seconds", &site));
    stuck.release(SECOND);
    let scraped = Scrape::read(&metrics.render());
    assert_eq!(
        (scraped.get("stuck_waiters", &site), scraped.get("stuck_oldest_start_timestamp_seconds", &site)),
        (0.0, 0.0)
    );
    assert!(scraped.get("site_oldest_hold_start_timestamp_seconds", &site) > 0.0, "the other key is still held");
}

#[test]
#[limit]
fn a_wait_as_long_as_usual_is_no_alarm() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let mut stuck = Acquire::new(&observer, 1, LOCK, "lock:user:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    // A queue that usually takes a minute.
    for attempt in 1000..1030 {
        let acquire = Acquire::new(&observer, attempt, LOCK, "lock:user:usual");
        acquire.send(LockEventKind::WaitStarted);
        acquire.acquired(GrantPath::Granted, Duration::from_secs(60), None);
        acquire.release(SECOND);
    }
    // Without a limit, only the usual wait says what is long.
    let waits = Acquire::new(&observer, 20, LOCK, "lock:user:stuck");
    waits.send(LockEventKind::WaitStarted);
    waits.send(LockEventKind::Contended { holder: Some(&seen("shop::charge")) });
    let scraped = Scrape::read(&metrics.render());
    assert_eq!(scraped.get("stuck_waiters", &[("lock", LOCK), ("site", "shop::charge")]), 0.0);
    assert_eq!(scraped.get("waiting_on", &[("lock", LOCK), ("holder_site", "shop::charge")]), 1.0);
}

#[test]
#[limit]
fn a_waiter_tells_how_old_the_hold_is_that_it_waits_for() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let held_since = |seconds| {
        let mut holder = holder("shop::report");
        holder.since = Some(UNIX_EPOCH + Duration::from_secs(seconds));
        holder
    };
    let _young = waiting(&observer, 1, "lock:user:young", &held_since(2_000_000_000));
    let _old = [2, 3].map(|attempt| waiting(&observer, attempt, "lock:user:old", &held_since(1_900_000_000)));
    let _unknown = waiting(&observer, 4, "lock:user:unknown", &holder("shop::charge"));
    let look = |name: &str, site| {
        let labels = [("lock", LOCK), ("holder_site", site)];
        Scrape::read(&metrics.render()).find(name, &labels)
    };
    let start = "waiting_on_oldest_hold_start_timestamp_seconds";
    assert_eq!(look(start, "shop::report"), Some(1.9e9), "of the oldest");
    eventually("both wait for long", || (look("waiting_on_oldest_hold", "shop::report") == Some(2.0)).then_some(()));
    assert_eq!(look("waiting_on", "shop::report"), Some(3.0));
    assert_eq!(
        (look(start, "shop::charge"), look("waiting_on", "shop::charge")),
        (None, Some(1.0)),
        "unknown is absent"
    );
}

/// Waits that end at their limit are the only ones that a lock with impatient callers has.
#[test]
#[limit]
fn callers_that_gave_up_count_as_waiters_of_what_they_waited_for() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let of = |name: &str, label: &str| {
        Scrape::read(&metrics.render()).find(name, &[("lock", LOCK), (label, "shop::charge")]).unwrap_or(0.0)
    };
    let mut stuck = Acquire::new(&observer, 1, LOCK, "lock:user:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    let gives_up = |attempt, key: &str, holder: &Holder| {
        let waited = Duration::from_secs(5);
        waiting(&observer, attempt, key, holder).send(LockEventKind::TimedOut { waited, holder: Some(holder) });
    };
    gives_up(10, "lock:user:stuck", &seen("shop::charge"));
    gives_up(11, "lock:user:stuck", &seen("shop::charge"));
    assert_eq!((of("stuck_waiters", "site"), of("waiting_on_oldest_hold", "holder_site")), (2.0, 2.0));
    assert_eq!(of("waiting_on", "holder_site"), 0.0, "they do not wait any more");
    // The healthy twin: another key of the same call site.
    gives_up(12, "lock:user:busy", &seen("shop::elsewhere"));
    assert_eq!(of("stuck_waiters", "site"), 2.0);
    // The key is let go, and taken by another caller: the time-outs are history.
    stuck.release(SECOND);
    let mut next = Acquire::new(&observer, 20, LOCK, "lock:user:stuck");
    next.stuck_after = Duration::ZERO;
    next.take();
    assert_eq!((of("stuck_waiters", "site"), of("waiting_on_oldest_hold", "holder_site")), (0.0, 0.0));
}

#[test]
#[limit]
fn a_wait_is_long_by_its_own_limit_even_if_most_waits_end_there() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    // Waits usually take a minute, which no caller with a limit of some milliseconds ever waits.
    for attempt in 1000..1030 {
        let acquire = Acquire::new(&observer, attempt, LOCK, "lock:user:usual");
        acquire.send(LockEventKind::WaitStarted);
        acquire.acquired(GrantPath::Granted, Duration::from_secs(60), None);
        acquire.release(SECOND);
    }
    let mut stuck = Acquire::new(&observer, 1, LOCK, "lock:user:stuck");
    stuck.stuck_after = Duration::ZERO;
    stuck.take();
    let _wait = waiting(&observer, 20, "lock:user:stuck", &seen("shop::charge"));
    let of = |name| Scrape::read(&metrics.render()).get(name, &[("lock", LOCK), ("site", "shop::charge")]);
    eventually("the wait is long", || (of("stuck_waiters") == 1.0).then_some(()));
}

/// A semaphore that is never empty is as old as its first member, which left long ago.
#[tokio::test]
#[limit]
async fn a_shared_lock_has_no_oldest_hold() {
    let metrics = builder().build().unwrap();
    let store = Arc::new(MemoryStore::new());
    let manager = || {
        let locks = LockManager::builder_shared(Arc::clone(&store)).build().unwrap();
        locks.observe(metrics.observer());
        locks
    };
    let (one, two) = (manager(), manager());
    let _permits = [
        one.semaphore("uploads", 2).with_site("shop::upload").acquire().await.unwrap(),
        one.semaphore("uploads", 2).with_site("shop::upload").acquire().await.unwrap(),
    ];
    let _report = one.lock("report").with_site("shop::report").acquire().await.unwrap();
    // Callers of the same process, and of another.
    let mut waits = tokio::task::JoinSet::new();
    for locks in [&one, &two] {
        waits.spawn(locks.semaphore("uploads", 2).with_wait(Wait::Forever).acquire());
        waits.spawn(locks.lock("report").with_wait(Wait::Forever).acquire());
    }
    let look = |name: &str, site| Scrape::read(&metrics.render()).find(name, &[("holder_site", site)]);
    let all_wait = || {
        let waiting = ["shop::upload", "shop::report"].map(|site| look("waiting_on", site));
        (waiting == [Some(2.0); 2]).then_some(())
    };
    while all_wait().is_none() {
        tokio::task::yield_now().await;
    }
    let start = "waiting_on_oldest_hold_start_timestamp_seconds";
    assert_eq!(look(start, "shop::upload"), None, "its members came at different times");
    assert!(look(start, "shop::report").is_some(), "an exclusive hold has one start");
}
