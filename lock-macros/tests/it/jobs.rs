//! `at_most_every`, `once_at`, `retry_failed`, `run_once_even_if` and `stripes`, on virtual time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use lock_core::testing::limit;
use lock_core::{LockError, LockErrorKind, LockManager, Striped, distributed_lock};
use tokio::time::sleep;

use crate::support::paused;

const HOUR: Duration = Duration::from_secs(3600);

#[distributed_lock(key = "cron:report", at_most_every = "1h", client = locks)]
async fn report(locks: &LockManager) -> Result<Option<&'static str>, LockError> {
    sleep(Duration::from_secs(60)).await;
    Ok(Some("written"))
}

#[distributed_lock(key = "cron:bill:<tenant>", once_at = scheduled, retry_failed, client = locks)]
async fn bill(locks: &LockManager, tenant: &str, scheduled: SystemTime, works: bool) -> Result<Option<()>, LockError> {
    if works { Ok(Some(())) } else { Err(LockError::unavailable("no paper")) }
}

#[distributed_lock(
    key = "cron:plain",
    at_most_every = HOUR * 2,
    run_once_even_if = "crashed",
    on_refused = "skip",
    max_hold = "1m",
    client = locks
)]
async fn plain(locks: &LockManager, runs: &AtomicU32) {
    runs.fetch_add(1, Ordering::Relaxed);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_job_runs_once_in_its_period_and_is_skipped_else() {
    let (locks, store) = paused();
    for _ in 0..3 {
        let (one, other) = tokio::join!(report(&locks), report(&locks));
        assert_eq!([one.unwrap(), other.unwrap()].iter().flatten().count(), 1);
        sleep(Duration::from_secs(50 * 60)).await;
        assert_eq!(report(&locks).await.unwrap(), None);
        sleep(Duration::from_secs(9 * 60)).await;
    }
    store.set_away(true);
    assert_eq!(report(&locks).await.unwrap_err().kind(), LockErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_fire_time_names_a_run_that_a_failure_does_not_count_as() {
    let (locks, _) = paused();
    let noon = SystemTime::now();
    assert!(bill(&locks, "a", noon, false).await.is_err());
    assert_eq!(bill(&locks, "a", noon, true).await.unwrap(), Some(()));
    assert_eq!(bill(&locks, "a", noon, true).await.unwrap(), None);
    assert_eq!(bill(&locks, "b", noon, true).await.unwrap(), Some(()));
    assert_eq!(bill(&locks, "a", noon + HOUR, true).await.unwrap(), Some(()));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_job_without_a_result_can_be_one_too() {
    let ((locks, _), runs) = (paused(), AtomicU32::new(0));
    for _ in 0..4 {
        plain(&locks, &runs).await;
        sleep(HOUR).await;
    }
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[distributed_lock(key = "lock:user:<user>", stripes = 8, wait = "none", on_busy = "skip", client = locks)]
async fn striped(locks: &LockManager, user: &str) -> Result<Option<String>, LockError> {
    sleep(Duration::from_secs(1)).await;
    Ok(lock_core::current_lock().map(|lock| lock.key().to_string()))
}

#[tokio::test(start_paused = true)]
#[limit]
async fn stripes_are_those_of_the_manager() {
    let (locks, _) = paused();
    let users: Striped = locks.striped("lock:user", 8);
    for user in ["ann@example.org", "bob", "a:b", "a%b"] {
        let encoded = user.replace('%', "%25").replace(':', "%3A");
        let stripe = users.stripe_of(&encoded);
        assert_eq!(striped(&locks, user).await.unwrap(), Some(format!("lock:user#{stripe}")), "{user}");
        let guard = users.lock(encoded).await.unwrap();
        assert_eq!(striped(&locks, user).await.unwrap(), None);
        drop(guard);
    }
    assert_eq!(striped(&locks, "").await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    let other = LockManager::in_memory();
    drop(other.striped("lock:user", 16).lock(1).await.unwrap());
    assert_eq!(striped(&other, "bob").await.unwrap_err().kind(), LockErrorKind::Misconfigured);
}
