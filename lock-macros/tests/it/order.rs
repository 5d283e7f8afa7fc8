//! Other attributes above and below ours.

use lock_core::{LockError, LockErrorKind, LockManager, current_lock, distributed_lock};
use tracing::instrument;

use crate::support::{assert_send, manager};

#[instrument(skip(locks))]
#[distributed_lock(key = "order:<id>", client = locks)]
async fn below_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    tokio::task::yield_now().await;
    Ok(current_lock().is_some())
}

#[distributed_lock(key = "order:<id>", client = locks)]
#[instrument(skip(locks), ret)]
async fn above_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    tokio::task::yield_now().await;
    Ok(current_lock().is_some())
}

#[instrument(skip_all)]
#[distributed_lock(key = "order:<id>", client = locks)]
fn blocking_below_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    Ok(current_lock().is_some())
}

#[distributed_lock(key = "order:outer", client = locks)]
#[distributed_lock(key = "order:inner:<id>", guard = inner, client = locks)]
#[must_use]
async fn two_locks(locks: &LockManager, id: u32) -> Result<String, LockError> {
    Ok(format!("{} in {:?}", inner.key(), lock_core::LockContext::current()))
}

#[tokio::test]
async fn every_order_locks() {
    let locks = manager();
    assert!(below_instrument(&locks, 1).await.unwrap());
    assert!(above_instrument(&locks, 1).await.unwrap());
    assert!(blocking_below_instrument(&locks, 1).unwrap());
    assert_send(&below_instrument(&locks, 1));
    assert_send(&above_instrument(&locks, 1));
    // The attribute nearest `fn` runs outermost, as for any two attributes.
    assert_eq!(two_locks(&locks, 7).await.unwrap(), r#"order:inner:7 in ["order:outer", "order:inner:7"]"#);
}

fn shared() -> LockManager {
    static LOCKS: std::sync::OnceLock<LockManager> = std::sync::OnceLock::new();
    LOCKS.get_or_init(LockManager::in_memory).clone()
}

#[tokio::test]
#[distributed_lock(key = "order:test", client = shared())]
async fn a_test_under_a_lock() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    let nested = shared().lock("order:test").acquire().await;
    assert_eq!(nested.map(drop).unwrap_err().kind(), LockErrorKind::WouldDeadlock);
    Ok(())
}

#[distributed_lock(key = "order:test", client = shared())]
#[tokio::test]
async fn a_test_whose_body_is_locked() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}
