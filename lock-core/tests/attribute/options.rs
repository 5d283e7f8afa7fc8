//! Each option about time, on virtual time.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockKey, LockManager, MemoryStore, Wait, distributed_lock};
use lock_testing::{EventLog, limit};
use tokio::time::{Instant, sleep};

use crate::support::paused;

const SECOND: Duration = Duration::from_secs(1);

fn holder(store: &MemoryStore) -> LockManager {
    LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap()
}

#[distributed_lock(key = "k", ttl = "9s", renew = "2s", client = locks)]
async fn renewed_often(locks: &LockManager) -> Result<(), LockError> {
    sleep(21 * SECOND).await;
    Ok(())
}

#[distributed_lock(key = "k", ttl = SECOND * 9, client = locks)]
async fn renewed(locks: &LockManager) -> Result<(), LockError> {
    sleep(21 * SECOND).await;
    Ok(())
}

#[distributed_lock(key = "k", ttl = "9s", renew = false, client = locks)]
async fn never_renewed(locks: &LockManager) -> Result<(), LockError> {
    sleep(21 * SECOND).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
#[limit]
async fn renew_is_the_interval_of_the_watchdog() {
    let (locks, _) = paused();
    let events = EventLog::default();
    locks.observe(events.clone());
    let renewals = || events.names().iter().filter(|name| **name == "Renewed").count();
    renewed_often(&locks).await.unwrap();
    assert_eq!(renewals(), 10);
    renewed(&locks).await.unwrap();
    assert_eq!(renewals(), 10 + 6, "or a third of the ttl");
    let started = Instant::now();
    assert_eq!(never_renewed(&locks).await.unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!((renewals(), started.elapsed().as_secs()), (16, 8), "the body is dropped just before its ttl ends");
}

#[distributed_lock(key = "k", min_hold = "20s", client = locks)]
async fn at_least(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = "forever", client = locks)]
async fn patient(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = "1m30s", client = locks)]
async fn less_patient(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = Wait::None, client = locks)]
async fn impatient(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
#[limit]
async fn wait_is_the_budget_and_min_hold_outlasts_the_body() {
    let (locks, store) = paused();
    let other = holder(&store);
    let taken = other.lock("k").await.unwrap();
    let started = Instant::now();
    assert_eq!(impatient(&locks).await.unwrap_err().kind(), LockErrorKind::Busy);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(less_patient(&locks).await.unwrap_err().kind(), LockErrorKind::Timeout);
    assert_eq!(started.elapsed().as_secs(), 90);
    let (outcome, _) = tokio::join!(patient(&locks), async {
        sleep(3_600 * SECOND).await;
        taken.release().await
    });
    outcome.unwrap();
    at_least(&locks).await.unwrap();
    let started = Instant::now();
    assert!(!store.is_empty());
    patient(&locks).await.unwrap();
    assert!((19..=21).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[distributed_lock(key = "k", on_lost = "skip", client = locks)]
async fn skips(locks: &LockManager) -> Result<Option<u32>, LockError> {
    sleep(3_600 * SECOND).await;
    Ok(Some(1))
}

#[tokio::test(start_paused = true)]
#[limit]
async fn skip_drops_a_body_that_lost_its_lock() {
    let (locks, store) = paused();
    let (outcome, ()) = tokio::join!(skips(&locks), async {
        sleep(5 * SECOND).await;
        store.steal(&LockKey::new("k").unwrap());
    });
    assert_eq!(outcome.unwrap(), None);
}
