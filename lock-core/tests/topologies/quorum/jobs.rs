//! A quorum's knowledge about the runs of a job, although no member has seen all of them.

use lock_core::{Job, LockError, LockManager};
use lock_testing::limit;
use tokio::time::sleep;

use crate::quorum::SECOND;
use crate::quorum::network::{Network, process, stores};

fn job(locks: &LockManager) -> Job {
    locks.lock("cron:report").at_most_every(10 * SECOND)
}

async fn succeed(locks: &LockManager) {
    assert_eq!(job(locks).run(async |_| Ok::<_, LockError>(())).await.unwrap(), Some(()));
}

/// The last success counts as the members know it together, and not as the one does that missed it.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_missed_a_run_does_not_make_the_job_look_overdue() {
    let process = process(&stores(3));
    succeed(&process.locks).await;
    sleep(10 * SECOND).await;
    process.set([2], Network::Refuses);
    succeed(&process.locks).await;
    sleep(10 * SECOND).await;
    process.set([2], Network::Up);
    process.set([0], Network::Refuses);
    let failed = job(&process.locks).run(async |_| Err::<(), _>(LockError::unavailable("no"))).await;
    assert!(failed.unwrap_err().to_string().contains("no"));
    process.set([0], Network::Up);
    process.set([1], Network::Refuses);
    let seen = process.locks.last_run("cron:report").await.unwrap().unwrap();
    assert!(!seen.succeeded && seen.started_ago < SECOND, "{seen:?}");
    assert!(seen.without_success_for < 11 * SECOND && seen.overdue().is_none(), "{seen:?}");
}

/// A member that knew nothing before takes the failed run for the first.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_knew_of_no_run_does_not_make_a_failing_job_look_punctual() {
    let process = process(&stores(3));
    process.set([2], Network::Refuses);
    succeed(&process.locks).await;
    sleep(40 * SECOND).await;
    process.set([2], Network::Up);
    process.set([0], Network::Refuses);
    let failed = job(&process.locks).run(async |_| Err::<(), _>(LockError::unavailable("no"))).await;
    assert!(failed.unwrap_err().to_string().contains("no"));
    process.set([0], Network::Up);
    process.set([1], Network::Refuses);
    let seen = process.locks.last_run("cron:report").await.unwrap().unwrap();
    assert!(!seen.succeeded && seen.without_success_for >= 40 * SECOND, "{seen:?}");
    assert!(seen.overdue().is_some_and(|late| late >= 29 * SECOND), "{seen:?}");
}
