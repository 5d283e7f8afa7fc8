//! Several keys at once, on virtual time.

use std::time::Duration;

use lock_core::{LockErrorKind, LockKey, LockManager, LossReason, MemoryStore, ReleaseOutcome};
use lock_testing::{EventLog, limit};

const SECOND: Duration = Duration::from_secs(1);

fn manager(store: &MemoryStore) -> (LockManager, EventLog) {
    let events = EventLog::default();
    let builder = LockManager::builder(store.clone()).observer(events.clone());
    (builder.drive_on_current_runtime().build().unwrap(), events)
}

fn key(text: &str) -> LockKey {
    LockKey::new(text).unwrap()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn keys_are_sorted_and_each_is_taken_once() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let guard = locks.lock_all(["b", "a", "b", "c"]).await.unwrap();
    assert_eq!(guard.keys().map(LockKey::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(guard.key().as_str(), "a");
    assert_eq!(guard.token_of(&key("a")), Some(guard.token()));
    assert!(guard.token_of(&key("c")) > guard.token_of(&key("a")));
    assert_eq!(guard.token_of(&key("d")), None);
    assert_eq!(store.len(), 3);
    tokio::time::sleep(600 * SECOND).await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(store.is_empty());
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn one_key_that_is_refused_gives_all_back() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let (other, _) = manager(&store);
    let taken = other.lock("b").await.unwrap();
    assert!(locks.lock_all(["c", "b", "a"]).try_acquire().await.unwrap().is_none());
    let started = tokio::time::Instant::now();
    let late = locks.lock_all(["c", "b", "a"]).with_wait(3 * SECOND).await.unwrap_err();
    assert_eq!((late.kind(), late.key()), (LockErrorKind::Timeout, Some(&key("b"))));
    assert!(started.elapsed() >= 3 * SECOND && started.elapsed() < 4 * SECOND);
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(store.len(), 1, "nothing but the other's key is left");
    taken.release().await.unwrap();
    let guard = locks.lock_all(["c", "b", "a"]).await.unwrap();
    drop(guard);
    tokio::time::sleep(SECOND / 10).await;
    assert!(store.is_empty());
    events.assert_complete();
}

/// The caller never held a lock, so it does not have to stop any work.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_key_that_is_lost_while_another_is_waited_for_is_no_lost_lock() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let (other, _) = manager(&store);
    let taken = other.lock("b").await.unwrap();
    let request = locks.lock_all(["a", "b"]).with_max_hold(5 * SECOND).with_wait(60 * SECOND);
    let waiting = tokio::spawn(async move { request.await });
    tokio::time::sleep(10 * SECOND).await;
    taken.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.key()), (LockErrorKind::Unavailable, Some(&key("a"))), "{error}");
    assert!(error.to_string().contains("none is held; acquire them again"), "{error}");
    tokio::time::sleep(SECOND).await;
    assert!(store.is_empty());
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn one_budget_covers_all_keys() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store);
    let (other, _) = manager(&store);
    let first = other.lock("a").await.unwrap();
    let _second = other.lock("b").await.unwrap();
    let waiting = tokio::spawn(async move {
        let started = tokio::time::Instant::now();
        let error = locks.lock_all(["a", "b"]).with_wait(4 * SECOND).await.unwrap_err();
        (error, started.elapsed())
    });
    tokio::time::sleep(3 * SECOND).await;
    first.release().await.unwrap();
    let (error, took) = waiting.await.unwrap();
    assert_eq!((error.kind(), error.key()), (LockErrorKind::Timeout, Some(&key("b"))));
    assert!(took >= 4 * SECOND && took < 5 * SECOND, "{took:?}");
    assert!(error.waited().unwrap() >= 4 * SECOND, "for all keys, not for the last: {error}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn callers_with_opposite_orders_do_not_wait_for_each_other() {
    let store = MemoryStore::new();
    let mut tasks = Vec::new();
    for index in 0..12 {
        let (locks, _) = manager(&store);
        let keys = if index % 2 == 0 { ["x", "y", "z"] } else { ["z", "y", "x"] };
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = locks.lock_all(keys).with_wait(600 * SECOND).await.unwrap();
                tokio::time::sleep(SECOND / 100).await;
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_loss_of_one_is_the_loss_of_all() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store);
    let guard = locks.lock_all(["a", "b", "c"]).with_ttl(9 * SECOND).await.unwrap();
    store.steal(&key("b"));
    assert_eq!(guard.lost().await, LossReason::Stolen);
    assert!(guard.ensure_held().is_err());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    tokio::time::sleep(SECOND / 10).await;
    assert!(store.is_empty());
    events.assert_complete();
}

#[tokio::test]
#[limit]
async fn no_keys_and_bad_keys_are_refused() {
    let locks = LockManager::in_memory();
    let none: [&str; 0] = [];
    assert_eq!(locks.lock_all(none).await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    assert_eq!(locks.lock_all(["a", ""]).await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    assert!(locks.holder("a").await.unwrap().is_none());
}

#[test]
#[limit]
fn several_keys_serve_synchronous_code() {
    let locks = LockManager::in_memory();
    let guard = locks.lock_all(["b", "a"]).acquire_blocking().unwrap();
    assert!(locks.lock("b").without_waiting().acquire_blocking().is_err());
    assert_eq!(guard.release_blocking(), Ok(ReleaseOutcome::Released));
}
