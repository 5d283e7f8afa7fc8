//! `at_most_every`, `once_every`, `once_at`, `retry_failed`, `run_once_even_if` and `stripes`, on virtual time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lock_core::{LockError, LockErrorKind, LockEvent, LockManager, LockObserver, Notice, Striped, distributed_lock};
use lock_testing::limit;
use tokio::time::sleep;

use crate::support::paused;

const HOUR: Duration = Duration::from_secs(3600);

#[distributed_lock(key = "cron:report", at_most_every = "1h", client = locks)]
async fn report(locks: &LockManager) -> Result<Option<&'static str>, LockError> {
    sleep(Duration::from_secs(60)).await;
    Ok(Some("written"))
}

#[distributed_lock(key = "cron:tick", once_every = "1h", client = locks)]
async fn tick(locks: &LockManager) -> Result<Option<&'static str>, LockError> {
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

/// How runs ended, by their locks.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<(String, bool)>>>);

impl LockObserver for Ends {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::JobEnded { label, succeeded, .. } = notice {
            self.0.lock().unwrap().push((label.as_str().to_owned(), *succeeded));
        }
    }
}

#[distributed_lock(key = "cron:blocking", at_most_every = "1h", client = locks)]
fn report_blocking(locks: &LockManager, works: bool) -> Result<Option<()>, LockError> {
    if works { Ok(Some(())) } else { Err(LockError::unavailable("no paper")) }
}

#[distributed_lock(key = "no:job", client = locks)]
async fn no_job(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_end_of_a_run_is_told_as_that_of_a_job_without_the_attribute() {
    let (locks, _) = paused();
    let ends = Ends::default();
    locks.observe(ends.clone());
    let noon = SystemTime::now();
    bill(&locks, "a", noon, false).await.unwrap_err();
    bill(&locks, "a", noon, true).await.unwrap();
    bill(&locks, "a", noon, true).await.unwrap();
    plain(&locks, &AtomicU32::new(0)).await;
    no_job(&locks).await.unwrap();
    let method = |fail: bool| {
        let job = locks.lock("cron:method").with_label("method").at_most_every(HOUR).retry_failed();
        job.run(async move |_| if fail { Err(LockError::unavailable("no paper")) } else { Ok(()) })
    };
    method(true).await.unwrap_err();
    method(false).await.unwrap();
    // A run that is cut short is none.
    assert!(tokio::time::timeout(Duration::from_secs(1), report(&locks)).await.is_err());
    sleep(Duration::from_secs(1)).await;
    let told = |of: &[(&str, bool)]| of.iter().map(|(lock, ok)| ((*lock).to_owned(), *ok)).collect::<Vec<_>>();
    let bills = "cron:bill:<tenant>";
    // That of the third is told behind its back: it is released in the background.
    let expected = [(bills, false), (bills, true), ("cron:plain", true), ("method", false), ("method", true)];
    ends.0.lock().unwrap().sort();
    assert_eq!(*ends.0.lock().unwrap(), told(&expected));

    let blocking = LockManager::in_memory();
    let ends = Ends::default();
    blocking.observe(ends.clone());
    report_blocking(&blocking, false).unwrap_err();
    assert_eq!(report_blocking(&blocking, true).unwrap(), None, "a failure counts without retry_failed");
    assert_eq!(*ends.0.lock().unwrap(), told(&[("cron:blocking", false)]));
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
async fn a_job_of_a_schedule_runs_at_each_tick_also_one_that_is_early() {
    let (locks, _) = paused();
    for early_minutes in [0, 5, 3] {
        assert_eq!(tick(&locks).await.unwrap(), Some("written"));
        sleep(Duration::from_secs(53 * 60)).await;
        assert_eq!(tick(&locks).await.unwrap(), None);
        sleep(Duration::from_secs((7 - early_minutes) * 60)).await;
    }
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
