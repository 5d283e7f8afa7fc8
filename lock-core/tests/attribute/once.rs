//! `once_for`, on virtual time and in threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, distributed_lock};
use lock_testing::limit;
use tokio::time::sleep;

use crate::support::{Down, assert_send, manager, paused};

/// How the next body ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    Failed,
    Never,
}

#[distributed_lock(key = "migrate:<database>", once_for = env!("CARGO_PKG_VERSION"), wait = "10m", max_hold = "5m", client = locks)]
async fn migrate(locks: &LockManager, database: &str, end: End) -> Result<Option<&'static str>, LockError> {
    sleep(Duration::from_secs(60)).await;
    match end {
        End::Well => Ok(Some("migrated")),
        End::Failed => Err(LockError::unavailable("no disk")),
        End::Never => std::future::pending().await,
    }
}

#[distributed_lock(key = "text", once_for = version, on_refused = "skip", client = locks)]
async fn owned(locks: &LockManager, version: String, runs: &AtomicU32) {
    runs.fetch_add(1, Ordering::Relaxed);
    drop(version);
}

#[distributed_lock(key = "blocking", once_for = format!("v{number}"), client = locks)]
fn blocking(locks: &LockManager, number: u32, works: bool) -> Result<Option<u32>, LockError> {
    if works { Ok(Some(number)) } else { Err(LockError::unavailable("no disk")) }
}

#[distributed_lock(key = "future", once_for = "v1", client = locks)]
fn future(locks: &LockManager) -> Pin<Box<dyn Future<Output = Result<Option<u32>, LockError>> + Send + '_>> {
    Box::pin(async { Ok(Some(7)) })
}

#[distributed_lock(key = "to its end", once_for = "v1", on_lost = "error", guard = guard, client = locks)]
async fn to_its_end(locks: &LockManager, store: &lock_core::MemoryStore, lost: bool) -> Result<Option<u32>, LockError> {
    if lost {
        store.steal(guard.key());
    }
    Ok(Some(7))
}

#[distributed_lock(key = "value", once_for = "v1", on_error = Ok(None), client = locks)]
async fn answered(locks: &LockManager) -> Result<Option<u32>, LockError> {
    Ok(Some(7))
}

#[tokio::test(start_paused = true)]
#[limit]
async fn work_is_done_once_for_its_version_and_by_the_next_if_it_fails() {
    let (locks, _) = paused();
    assert_send(&migrate(&locks, "orders", End::Well));
    assert_eq!(migrate(&locks, "orders", End::Failed).await.unwrap_err().kind(), LockErrorKind::Unavailable);
    assert_eq!(migrate(&locks, "orders", End::Never).await.unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!(locks.done("migrate:orders", env!("CARGO_PKG_VERSION")).await, Ok(None));
    let [one, other] = [(); 2].map(|()| migrate(&locks, "orders", End::Well));
    let (one, other) = tokio::join!(one, other);
    let mut both = [one.unwrap(), other.unwrap()];
    both.sort_unstable();
    assert_eq!(both, [None, Some("migrated")], "one does it, the other waits and finds it done");
    assert_eq!(migrate(&locks, "orders", End::Never).await, Ok(None));
    assert_eq!(migrate(&locks, "users", End::Well).await, Ok(Some("migrated")), "another lock");
    let mark = locks.done("migrate:orders", env!("CARGO_PKG_VERSION")).await.unwrap().unwrap();
    assert!(mark.by.site.contains("migrate"), "{mark:?}");
    locks.forget_done("migrate:orders", env!("CARGO_PKG_VERSION")).await.unwrap();
    assert_eq!(migrate(&locks, "orders", End::Well).await, Ok(Some("migrated")));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn every_form_of_function_can_be_done_once() {
    let ((locks, store), runs) = (paused(), AtomicU32::new(0));
    for version in ["v1", "v1", "v2"] {
        owned(&locks, version.to_owned(), &runs).await;
    }
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!([future(&locks).await, future(&locks).await], [Ok(Some(7)), Ok(None)]);
    let lost = to_its_end(&locks, &store, true).await.unwrap_err();
    assert_eq!(lost.kind(), LockErrorKind::Lost, "it ran to its end, and is not done");
    assert_eq!(to_its_end(&locks, &store, false).await, Ok(Some(7)));
    assert_eq!(to_its_end(&locks, &store, true).await, Ok(None));

    let threads = manager();
    assert_eq!(blocking(&threads, 1, false).unwrap_err().kind(), LockErrorKind::Unavailable);
    assert_eq!(blocking(&threads, 1, true), Ok(Some(1)));
    assert_eq!(blocking(&threads, 1, true), Ok(None));
    assert_eq!(blocking(&threads, 2, true), Ok(Some(2)));
}

#[tokio::test]
#[limit]
async fn a_version_that_cannot_be_one_and_a_store_without_marks_are_mistakes() {
    let (locks, runs) = (manager(), AtomicU32::new(0));
    let long = tokio::spawn(async move { owned(&locks, "x".repeat(1025), &runs).await });
    assert!(long.await.unwrap_err().is_panic(), "its return type cannot say so");
    let down = LockManager::builder(Down).build().unwrap();
    let refused = answered(&down).await.unwrap_err();
    assert!(refused.to_string().contains("does not keep marks"), "a value does not hide that: {refused}");
}
