//! The end of a body whose lock is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockKey, LockManager, LossReason, distributed_lock};
use lock_testing::limit;

use crate::support::{manager, paused};

/// Counts what is dropped.
struct Bomb<'a>(&'a AtomicU32);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn two_steps(steps: &AtomicU32) -> Result<u32, LockError> {
    steps.store(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    steps.store(2, Ordering::SeqCst);
    Ok(7)
}

#[distributed_lock(key = "lost", ttl = "10s", client = locks)]
async fn cancelled(locks: &LockManager, steps: &AtomicU32, dropped: &AtomicU32) -> Result<u32, LockError> {
    let _bomb = Bomb(dropped);
    two_steps(steps).await
}

#[distributed_lock(key = "lost", ttl = "10s", on_lost = "error", client = locks)]
async fn told_at_the_end(locks: &LockManager, steps: &AtomicU32) -> Result<u32, LockError> {
    two_steps(steps).await
}

#[distributed_lock(key = "lost", ttl = "10s", on_lost = "ignore", client = locks)]
async fn ignored(locks: &LockManager, steps: &AtomicU32) -> Result<u32, LockError> {
    two_steps(steps).await
}

#[distributed_lock(key = "lost", ttl = "10s", max_hold = "30s", client = locks)]
async fn limited(locks: &LockManager, steps: &AtomicU32) -> Result<u32, LockError> {
    two_steps(steps).await
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_a_loss_does() {
    let (locks, store) = paused();
    let (steps, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
    let steal = || async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.steal(&LockKey::new("lost").unwrap());
    };
    let (outcome, ()) = tokio::join!(cancelled(&locks, &steps, &dropped), steal());
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.loss_reason()), (LockErrorKind::Lost, Some(LossReason::Stolen)));
    assert_eq!(error.key().unwrap().as_str(), "lost");
    assert_eq!((steps.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 1));

    let (outcome, ()) = tokio::join!(told_at_the_end(&locks, &steps), steal());
    assert_eq!((outcome.unwrap_err().kind(), steps.load(Ordering::SeqCst)), (LockErrorKind::Lost, 2));

    let (outcome, ()) = tokio::join!(ignored(&locks, &steps), steal());
    assert_eq!(outcome.unwrap(), 7);

    let error = limited(&locks, &steps).await.unwrap_err();
    assert_eq!((error.loss_reason(), steps.load(Ordering::SeqCst)), (Some(LossReason::MaxHold), 1));
    assert!(store.is_empty(), "the end of a max_hold frees the key");
}

#[distributed_lock(key = "sync-lost", ttl = "50ms", renew = false, client = locks)]
fn too_slow(locks: &LockManager, early: bool) -> Result<u32, LockError> {
    std::thread::sleep(Duration::from_millis(80));
    if early {
        return Ok(1);
    }
    Ok(2)
}

#[test]
#[limit]
fn a_synchronous_body_that_outlives_its_lock_fails() {
    let locks = manager();
    for early in [true, false] {
        assert_eq!(too_slow(&locks, early).unwrap_err().kind(), LockErrorKind::Lost);
    }
}

#[distributed_lock(key = "slow", ttl = "50ms", renew = false, client = locks)]
async fn blocks_its_thread(locks: &LockManager, polled_again: &AtomicU32) -> Result<(), LockError> {
    std::thread::sleep(Duration::from_millis(80));
    tokio::task::yield_now().await;
    polled_again.store(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test]
#[limit]
async fn a_body_is_not_polled_after_its_lease() {
    let polled_again = AtomicU32::new(0);
    let error = blocks_its_thread(&manager(), &polled_again).await.unwrap_err();
    assert_eq!((error.kind(), polled_again.load(Ordering::SeqCst)), (LockErrorKind::Lost, 0));
}
