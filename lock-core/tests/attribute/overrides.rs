//! Other options for one call.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockKey, LockManager, LockRequest, distributed_lock, lock_key, overriding};
use lock_testing::limit;
use tokio::time::{Instant, sleep};

use crate::support::{manager, paused};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = "over:<id>", wait = "2s", client = locks)]
async fn inner(locks: &LockManager, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "over:outer", wait = "2s", client = locks)]
async fn outer(locks: &LockManager, id: u32) -> Result<(), LockError> {
    inner(locks, id).await
}

#[tokio::test(start_paused = true)]
#[limit]
async fn one_call_is_told_otherwise_and_no_other() {
    let (locks, store) = paused();
    let other = LockManager::builder(store).drive_on_current_runtime().build().unwrap();
    let _taken = other.lock("over:1").await.unwrap();
    let started = Instant::now();
    overriding(|request| request.with_wait(30 * SECOND)).scope(inner(&locks, 1)).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 30);
    let started = Instant::now();
    inner(&locks, 1).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 2, "the scope is over");
    // A function that a locked body calls keeps its own options.
    let started = Instant::now();
    overriding(|request| request.with_wait(60 * SECOND)).scope(outer(&locks, 1)).await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 2);
    // The innermost of several scopes is asked last.
    let started = Instant::now();
    let nested = overriding(LockRequest::without_waiting).scope(inner(&locks, 1));
    let error = overriding(|request| request.with_wait(60 * SECOND)).scope(nested).await.unwrap_err();
    assert_eq!((error.kind(), started.elapsed()), (LockErrorKind::Busy, Duration::ZERO));
}

#[distributed_lock(key = "over:blocking", wait = "1m", client = locks)]
fn blocking(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[test]
#[limit]
fn a_synchronous_call_is_told_otherwise() {
    let locks = manager();
    let _taken = locks.lock("over:blocking").acquire_blocking().unwrap();
    let error = overriding(LockRequest::without_waiting).call(|| blocking(&locks)).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Busy);
}

#[distributed_lock(keys = ids.iter().map(|id| lock_key!("order:<id>")), wait = "none", guard = lock, client = locks)]
async fn ship(locks: &LockManager, ids: &[u32]) -> Result<Vec<String>, LockError> {
    Ok(lock.keys().map(ToString::to_string).collect())
}

#[distributed_lock(keys = names, label = "names", wait = "none", client = locks)]
fn by_name(locks: &LockManager, names: Vec<String>) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
#[limit]
async fn keys_come_from_an_iterator() {
    let locks = manager();
    assert_eq!(ship(&locks, &[7, 3, 7]).await.unwrap(), ["order:3", "order:7"]);
    let guard = locks.lock("order:3").await.unwrap();
    assert_eq!(ship(&locks, &[7, 3]).await.unwrap_err().kind(), LockErrorKind::Busy);
    guard.release().await.unwrap();
    assert_eq!(ship(&locks, &[]).await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    let site = |name: &str| lock_core::sites().find(|site| site.function().ends_with(name)).unwrap().label;
    assert_eq!((site("overrides::ship"), site("overrides::by_name")), ("attribute::overrides::ship", "names"));
}

#[test]
#[limit]
fn keys_come_from_a_list() {
    let locks = manager();
    by_name(&locks, vec!["a".to_owned(), "b".to_owned()]).unwrap();
    let _taken = locks.lock("b").acquire_blocking().unwrap();
    assert_eq!(by_name(&locks, vec!["a".to_owned(), "b".to_owned()]).unwrap_err().kind(), LockErrorKind::Busy);
    assert_eq!(by_name(&locks, vec![String::new()]).unwrap_err().kind(), LockErrorKind::InvalidKey);
}

#[distributed_lock(key = "keep", ttl = "2s", min_hold = "20s", min_hold_on = "ok", wait = "none", client = locks)]
async fn once(locks: &LockManager, outcome: Result<u32, LockError>) -> Result<u32, LockError> {
    sleep(SECOND).await;
    outcome
}

#[distributed_lock(key = "keep", ttl = "2s", min_hold = "20s", min_hold_on = "ok", wait = "none", client = locks)]
async fn once_panicking(locks: &LockManager) -> Result<u32, LockError> {
    panic!("in the body")
}

#[distributed_lock(key = "keep", ttl = "2s", min_hold = "20s", min_hold_on = "ok", on_lost = "error", wait = "none", client = locks)]
async fn once_to_the_end(locks: &LockManager, outcome: Result<u32, LockError>) -> Result<u32, LockError> {
    outcome
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_min_hold_outlasts_the_ttl_and_an_error_frees_at_once() {
    let (locks, store) = paused();
    let key = LockKey::new("keep").unwrap();
    let failed = || Err(LockError::misconfigured("for the test"));
    for _ in 0..2 {
        once(&locks, failed()).await.unwrap_err();
        once_to_the_end(&locks, failed()).await.unwrap_err();
        assert!(store.is_empty(), "an error frees the key");
    }
    let panicked = tokio::spawn({
        let locks = locks.clone();
        async move { once_panicking(&locks).await }
    });
    assert!(panicked.await.unwrap_err().is_panic());
    sleep(SECOND / 10).await;
    assert!(store.is_empty(), "a panic frees the key");
    for succeed in [true, false] {
        let started = Instant::now();
        if succeed {
            assert_eq!(once(&locks, Ok(5)).await.unwrap(), 5);
        } else {
            assert_eq!(once_to_the_end(&locks, Ok(5)).await.unwrap(), 5);
        }
        let left = locks.holder(key.clone()).await.unwrap().unwrap().ttl_left.unwrap();
        assert!(left > 15 * SECOND, "kept for longer than the ttl: {left:?}");
        assert_eq!(once(&locks, Ok(6)).await.unwrap_err().kind(), LockErrorKind::Busy);
        let freed = locks.lock("keep").with_wait(60 * SECOND).await.unwrap();
        let after = started.elapsed();
        assert!(after >= 20 * SECOND && after < 22 * SECOND, "{after:?}");
        freed.release().await.unwrap();
    }
}

/// While the body runs, the lease is the ttl: who dies frees the key soon.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_long_min_hold_keeps_the_lease_short() {
    let (locks, _) = paused();
    let guard = locks.lock("keep").with_ttl(2 * SECOND).with_min_hold(60 * SECOND).await.unwrap();
    assert!(guard.remaining() <= 2 * SECOND);
    sleep(10 * SECOND).await;
    guard.ensure_held().unwrap();
    let left = locks.holder("keep").await.unwrap().unwrap().ttl_left.unwrap();
    assert!(left <= 2 * SECOND, "{left:?}");
    guard.release().await.unwrap();
    let left = locks.holder("keep").await.unwrap().unwrap().ttl_left.unwrap();
    assert!(left > 49 * SECOND && left <= 50 * SECOND, "{left:?}");
}
