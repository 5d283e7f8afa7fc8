//! The machinery on virtual time, over the memory store.

use std::future::Future as _;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::{
    GrantPath, LockError, LockErrorKind, LockEvent, LockEventKind, LockManager, LossReason, MemoryStore,
    ReleaseOutcome, Renew,
};
use lock_testing::{EventLog, limit};

const SECOND: Duration = Duration::from_secs(1);

fn manager(store: &MemoryStore) -> (LockManager, EventLog) {
    let recorder = EventLog::default();
    let manager =
        LockManager::builder(store.clone()).observer(recorder.clone()).drive_on_current_runtime().build().unwrap();
    (manager, recorder)
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_watchdog_keeps_a_lock_for_an_hour() {
    let (locks, events) = manager(&MemoryStore::new());
    let guard = locks.lock("k").with_ttl(10 * SECOND).await.unwrap();
    tokio::time::sleep(3600 * SECOND).await;
    guard.ensure_held().unwrap();
    assert!(guard.remaining() > 6 * SECOND, "{:?}", guard.remaining());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let renewals = events.names().iter().filter(|name| **name == "Renewed").count();
    assert!((1000..1100).contains(&renewals), "{renewals}");
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_fixed_lease_ends_by_the_clock() {
    let (locks, events) = manager(&MemoryStore::new());
    let guard = locks.lock("k").with_ttl(10 * SECOND).with_renew(Renew::Off).await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), Some(LossReason::Expired));
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost(LossReason::Expired));
    assert_eq!(events.names(), ["WaitStarted", "Acquired", "Lost"]);
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_renewal_never_shortens_a_lease_that_was_extended() {
    let (locks, events) = manager(&MemoryStore::new());
    let guard = locks.lock("k").with_ttl(10 * SECOND).await.unwrap();
    guard.extend(600 * SECOND).await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(events.count("Renewed") > 0, "the watchdog has asked for ten seconds meanwhile");
    assert!(guard.remaining() > 500 * SECOND, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn extend_prolongs_a_fixed_lease() {
    let (locks, _) = manager(&MemoryStore::new());
    let guard = locks.lock("k").with_ttl(2 * SECOND).with_renew(Renew::Off).await.unwrap();
    guard.extend(60 * SECOND).await.unwrap();
    tokio::time::sleep(50 * SECOND).await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.extend(Duration::ZERO).await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(guard.extend(SECOND).await.unwrap_err().kind(), LockErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn an_extension_is_not_passed_on() {
    let (locks, events) = manager(&MemoryStore::new());
    let take = || tokio::spawn(locks.lock("k").with_ttl(10 * SECOND).acquire());
    let first = take().await.unwrap().unwrap();
    let (second, third) = (take(), take());
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    second.extend(3600 * SECOND).await.unwrap();
    second.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert!(
        third.remaining() <= 10 * SECOND,
        "{:?}: it would block the fleet for that long if it died",
        third.remaining()
    );
    assert_eq!(events.paths().len(), 3);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn max_hold_ends_a_body_that_hangs() {
    let (locks, events) = manager(&MemoryStore::new());
    let outcome: Result<(), LockError> =
        locks.lock("k").with_max_hold(100 * SECOND).run(async |_| std::future::pending().await).await;
    assert_eq!(outcome.unwrap_err().loss_reason(), Some(LossReason::MaxHold));
    locks.lock("k").without_waiting().await.unwrap().release().await.unwrap();
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_theft_is_known_within_a_renewal() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let guard = locks.lock("k").with_ttl(9 * SECOND).await.unwrap();
    store.steal(guard.key());
    let known = tokio::time::timeout(3 * SECOND + SECOND / 10, guard.lost()).await;
    assert_eq!(known.unwrap(), LossReason::Stolen);
    drop(guard);
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn waiting_is_first_come_first_served_within_one_budget() {
    let (locks, events) = manager(&MemoryStore::new());
    let first = locks.lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for index in 0..5 {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let _guard = locks.lock("k").with_wait(60 * SECOND).await.unwrap();
            order.lock().unwrap().push(index);
            tokio::time::sleep(SECOND).await;
        }));
        tokio::time::sleep(SECOND / 100).await;
    }
    let impatient = locks.lock("k").with_wait(2 * SECOND).await.unwrap_err();
    assert_eq!(impatient.kind(), LockErrorKind::Timeout);
    assert!(impatient.waited().unwrap() >= 2 * SECOND);
    assert!(impatient.holder().is_some(), "{impatient}");
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn two_managers_exclude_each_other() {
    let store = MemoryStore::new();
    let (one, _) = manager(&store);
    let (two, events) = manager(&store);
    let guard = one.lock("k").await.unwrap();
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(async move { two.lock("k").with_wait(10 * SECOND).await });
    tokio::time::sleep(SECOND).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap();
    assert!(second.token() > token);
    assert!(events.names().contains(&"Contended"));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn min_hold_keeps_the_key_taken() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store);
    locks.lock("k").with_min_hold(5 * SECOND).await.unwrap().release().await.unwrap();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(5 * SECOND).await;
    assert!(locks.lock("k").try_acquire().await.unwrap().is_some());
}

/// Two limits of different things: of the work, and of how soon it may begin again. A job is made of the same two.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_min_hold_outlasts_a_shorter_max_hold_which_ends_the_work() {
    let (locks, _) = manager(&MemoryStore::new());
    let ended = async {
        let request = locks.lock("k").with_max_hold(10 * SECOND).with_min_hold(60 * SECOND);
        request.run(async |_| std::future::pending::<Result<(), LockError>>().await).await
    };
    assert_eq!(ended.await.unwrap_err().loss_reason(), Some(LossReason::MaxHold));
    let left = locks.holder("k").await.unwrap().unwrap().ttl_left.unwrap();
    assert!(left > 45 * SECOND && left <= 50 * SECOND, "{left:?}");
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(left).await;
    assert!(locks.lock("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn shutdown_releases_everything_and_wakes_everybody() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let guard = locks.lock("held").await.unwrap();
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("held").await })
    };
    tokio::time::sleep(SECOND).await;
    let report = locks.shutdown(SECOND).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.released, 1);
    assert!(store.is_empty());
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(locks.lock("new").await.unwrap_err().kind(), LockErrorKind::ShutDown);
    drop(guard);
    events.assert_complete();
}

/// The alarms of two locks ring together. The first lock is lost, and its observer shuts the manager down
/// before the keeper has come to the second.
#[tokio::test(start_paused = true)]
#[limit]
async fn shutdown_finds_a_lock_whose_alarm_is_being_served() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store);
    let ending = Arc::new(Mutex::new(None));
    let (manager, begun) = (locks.clone(), Arc::clone(&ending));
    locks.observe(move |event: &LockEvent<'_>| {
        if matches!(event.kind, LockEventKind::Lost { reason: LossReason::MaxHold, .. }) {
            let locks = manager.clone();
            let mut shutdown = Box::pin(async move { locks.shutdown(10 * SECOND).await });
            let mut cx = Context::from_waker(Waker::noop());
            assert!(shutdown.as_mut().poll(&mut cx).is_pending());
            *begun.lock().unwrap() = Some(shutdown);
        }
    });
    let _first = locks.lock("first").with_max_hold(SECOND / 2).await.unwrap();
    let second = locks.lock("second").with_renew(Renew::Every(SECOND)).await.unwrap();
    tokio::time::advance(2 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let shutdown = ending.lock().unwrap().take().unwrap();
    let report = shutdown.await;
    assert_eq!((report.released, report.is_clean()), (1, true), "{report:?}");
    assert_eq!(second.lost().await, LossReason::ShutDown);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn bad_settings_are_refused_before_anything_is_sent() {
    let (locks, events) = manager(&MemoryStore::new());
    let misconfigured = [
        locks.lock("k").with_ttl(Duration::ZERO),
        locks.lock("k").with_ttl(SECOND / 5),
        locks.lock("k").with_ttl(Duration::MAX),
        locks.lock("k").with_renew(Renew::Every(60 * SECOND)),
    ];
    for request in misconfigured {
        let error = request.await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("use "), "{error}");
    }
    assert_eq!(locks.lock("").await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    assert_eq!(locks.lock("x".repeat(600)).await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    events.assert_complete();
}

#[test]
#[limit]
fn any_executor_will_do() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("k").acquire_blocking().unwrap();
    let refused = locks.lock("k").with_wait(SECOND / 20).acquire_blocking().unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Timeout);
    assert_eq!(guard.release_blocking().unwrap(), ReleaseOutcome::Released);
    // Dropped without any runtime.
    drop(locks.lock("k").acquire_blocking().unwrap());
    drop(locks.lock("k").acquire_blocking().unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lock_on_its_way_to_the_next_holder_has_no_max_hold() {
    let (locks, events) = manager(&MemoryStore::new());
    let first = locks.lock("k").await.unwrap();
    let mut second = std::pin::pin!(locks.lock("k").with_max_hold(Duration::from_millis(8)).acquire());
    let mut third = std::pin::pin!(locks.lock("k").acquire());
    // Both wait, and the third is not polled for a while.
    assert!(tokio::time::timeout(Duration::ZERO, second.as_mut()).await.is_err());
    assert!(tokio::time::timeout(Duration::ZERO, third.as_mut()).await.is_err());
    let (released, second) = tokio::join!(first.release(), second);
    released.unwrap();
    let passing = second.unwrap().release();
    // Longer than that, but not so long that the turn is taken back.
    tokio::time::sleep(Duration::from_millis(9)).await;
    let guard = third.await.unwrap();
    guard.ensure_held().unwrap();
    passing.await.unwrap();
    assert_eq!(events.paths(), [GrantPath::Uncontended, GrantPath::Handoff, GrantPath::Handoff]);
    guard.release().await.unwrap();
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_loss_by_the_clock_is_told_on_the_dot() {
    let (locks, _) = manager(&MemoryStore::new());
    // Between the ticks by which renewals are gathered.
    for ttl in [1_003, 1_019, 2_540].map(Duration::from_millis) {
        let started = tokio::time::Instant::now();
        let guard = locks.lock("k").with_ttl(ttl).with_renew(Renew::Off).await.unwrap();
        assert_eq!(guard.lost().await, LossReason::Expired);
        let (took, promised) = (started.elapsed(), ttl - ttl / 100);
        assert!(took >= promised && took <= promised + Duration::from_millis(3), "{took:?} for {promised:?}");
        drop(guard);
        tokio::time::sleep(SECOND / 10).await;
    }
}
