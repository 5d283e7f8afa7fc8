//! The store's record of a job's runs, by which a missing run is noticed.

use std::time::Duration;

use lock_core::testing::TestLocks;
use lock_core::{LockError, LockManager};
use lock_store::JobRecord;
use lock_testing::limit;
use tokio::time::{advance, sleep};

use super::{HOUR, SECOND, crash, cut_short, hourly, instances, run};

async fn record(locks: &LockManager) -> Option<JobRecord> {
    locks.last_run("cron:report").await.unwrap()
}

async fn fail(locks: &LockManager) {
    let failed = hourly(locks).run(async |_| Err::<(), _>(LockError::unavailable("the printer is on fire")));
    assert!(failed.await.unwrap_err().to_string().contains("on fire"));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_job_that_does_not_run_again_is_overdue_by_the_time_since_then() {
    let locks = LockManager::for_tests();
    assert_eq!(record(&locks).await, None, "it never ran");
    let slow = hourly(&locks).run(async |_| {
        sleep(600 * SECOND).await;
        Ok::<_, LockError>(())
    });
    slow.await.unwrap();
    let seen = record(&locks).await.unwrap();
    assert!(seen.succeeded && seen.every == HOUR && seen.overdue().is_none(), "{seen:?}");
    assert_eq!((seen.started_ago, seen.info.pid), (600 * SECOND, std::process::id()), "a run counts from its start");
    assert!(seen.info.site.contains("jobs.rs"), "{seen:?}");
    advance(HOUR - 250 * SECOND).await;
    assert_eq!(record(&locks).await.unwrap().overdue(), None, "a start may be late by a tenth");
    advance(2 * HOUR - 350 * SECOND).await;
    assert_eq!(record(&locks).await.unwrap().overdue(), Some(2 * HOUR));
    run(hourly(&locks)).await.unwrap();
    assert_eq!(record(&locks).await.unwrap().overdue(), None);
    advance(10 * HOUR).await;
    assert_eq!(record(&locks).await, None, "after ten periods it is forgotten");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn runs_that_fail_do_not_make_it_punctual() {
    let locks = LockManager::for_tests();
    fail(&locks).await;
    advance(2 * HOUR).await;
    fail(&locks).await;
    let seen = record(&locks).await.unwrap();
    assert_eq!((seen.succeeded, seen.started_ago, seen.overdue()), (false, Duration::ZERO, Some(HOUR)));
    advance(HOUR).await;
    run(hourly(&locks)).await.unwrap();
    advance(2 * HOUR).await;
    let retried = hourly(&locks).retry_failed().run(async |_| Err::<(), _>(LockError::unavailable("no")));
    assert!(retried.await.is_err());
    let seen = record(&locks).await.unwrap();
    assert_eq!((seen.succeeded, seen.overdue()), (false, Some(HOUR)), "a run that is to be retried is told too");
}

/// Only completed runs are noted: not a skipped start, not a crash, not a run that is dropped for a retry.
#[test]
#[limit]
fn only_what_ran_is_noted() {
    let locks = LockManager::in_memory();
    cut_short(&locks, hourly(&locks).retry_failed(), false);
    let (store, _) = instances(0);
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        assert_eq!(record(&locks).await, None, "it was dropped");
        let manager = LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
        let job = hourly(&manager);
        crash(manager.clone(), job).await;
        assert_eq!(record(&manager).await, None, "it died");
        assert_eq!(run(hourly(&manager)).await.unwrap(), None);
        assert_eq!(record(&manager).await, None, "it was skipped");
        let once = manager.lock("cron:once").once_at(std::time::SystemTime::now());
        run(once).await.unwrap();
        assert_eq!(manager.last_run("cron:once").await.unwrap(), None, "it has no period");
        let plain = manager.lock("plain").with_min_hold(SECOND).await.unwrap();
        plain.release().await.unwrap();
        assert_eq!(manager.last_run("plain").await.unwrap(), None, "it is no job");
    });
}

/// The lock of a job that has run for longer than its period is free with its end, and may be wanted here.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_run_is_noted_although_somebody_waits_for_its_lock() {
    let locks = LockManager::for_tests();
    let waits = locks.lock("cron:report").with_wait(10 * HOUR);
    let long = hourly(&locks).run(async |_| {
        sleep(3 * HOUR).await;
        Ok::<_, LockError>(())
    });
    let (ran, waited) = tokio::join!(long, async {
        sleep(SECOND).await;
        waits.await
    });
    assert_eq!(ran.unwrap(), Some(()));
    waited.unwrap().release().await.unwrap();
    assert_eq!(record(&locks).await.unwrap().started_ago, 3 * HOUR);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn it_lies_in_the_namespace_of_its_job() {
    let locks: TestLocks = LockManager::for_tests();
    run(hourly(&locks)).await.unwrap();
    assert!(locks.last_run("cron:other").await.unwrap().is_none());
    locks.set_away(true);
    assert!(locks.last_run("cron:report").await.is_err(), "a store that is away says so");
}
