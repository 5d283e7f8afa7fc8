//! Rules for how often jobs run, and for a store's record of their runs.

use std::time::Duration;

use crate::conformance::contract::{ask_at, granted};
use crate::conformance::tools::{MS, SECOND, key, now, pause, soon};
use lock_core::LockManager;
use lock_store::contract::backend::{Claim, JobRecord, JobRecords, JobRun, LockBackend, Release};
use lock_store::types::error::{LockError, LockErrorKind};
use lock_store::types::key::LockKey;

/// Two periods are longer than any pause in this rule, and ten periods pass soon.
const EVERY: Duration = Duration::from_millis(400);

/// A store that remembers runs of jobs remembers the last one for ten periods.
pub async fn last_runs(store: impl LockBackend) {
    let Some(jobs) = store.jobs() else { return };
    let key = key("job");
    assert_eq!(last(jobs, &key).await, None, "it never ran");
    let began = now();
    run(&store, &key, "first", None).await;
    assert_eq!(last(jobs, &key).await, None, "what is no run of a job is not remembered");
    let first = now();
    run(&store, &key, "second", Some(true)).await;
    let Some(record) = last(jobs, &key).await else {
        assert!(now().since(first) >= JobRun::new(EVERY, true).kept_for(), "a store with `jobs()` remembers a run");
        return;
    };
    assert_eq!((&*record.info.site, record.every, record.succeeded), ("second", EVERY, true));
    assert!(record.started_ago <= now().since(began) + SECOND, "{record:?}");
    assert_eq!(record.started_ago, record.without_success_for, "a run that succeeded counts from its start");
    pause(100 * MS).await;
    run(&store, &key, "third", Some(false)).await;
    let Some(record) = last(jobs, &key).await.filter(|_| now().since(first) < 9 * EVERY) else { return };
    assert_eq!((&*record.info.site, record.succeeded), ("third", false), "the last run counts");
    let between = record.without_success_for.saturating_sub(record.started_ago);
    assert!(between >= 90 * MS, "a run that failed is no success: {record:?}");
    // This claim never had the lock.
    end(&store, Claim::new(key.clone(), SECOND), Some(true)).await;
    let seen = last(jobs, &key).await;
    assert!(seen.is_none_or(|seen| &*seen.info.site == "third"), "only who has the lock has run the job");
    assert!(matches!(store.holder(&key).await, Ok(None)), "it holds nothing");
    pause(10 * EVERY + SECOND).await;
    assert_eq!(last(jobs, &key).await, None, "it ends by itself: most jobs run again");
}

/// Runs a job at most once in its period, from one start to the next, and again after it.
pub async fn periods([one, two, three]: [LockManager; 3]) {
    const PERIOD: Duration = Duration::from_secs(2);
    let key = key("period");
    let since = now();
    let first = one.lock(&key).at_most_every(PERIOD).run(async |_| Ok::<_, LockError>(())).await;
    assert_eq!(first, Ok(Some(())), "a job that never ran must run");
    let runs_again = async {
        for other in [&two, &three, &one].into_iter().cycle() {
            match other.lock(&key).at_most_every(PERIOD).run(async |_| Ok::<_, LockError>(now())).await {
                Ok(Some(began)) => return began,
                Ok(None) => pause(10 * MS).await,
                // On a machine that stalls, it is unknown whether the job has run. This does not count as a run.
                Err(error) if error.kind() == LockErrorKind::Unavailable => pause(10 * MS).await,
                Err(error) => panic!("a job that has run is skipped: {error}"),
            }
        }
        unreachable!()
    };
    let began = soon("a job runs again after its period", runs_again).await;
    assert!(began.since(since) >= PERIOD, "a job at most every {PERIOD:?} ran again after {:?}", began.since(since));
}

async fn last(jobs: &impl JobRecords, key: &LockKey) -> Option<JobRecord> {
    jobs.last_run(key).await.unwrap_or_else(|error| panic!("last_run: {error}"))
}

/// Takes the lock and releases it. Ends a run with it if `succeeded` is given.
async fn run(store: &impl LockBackend, key: &LockKey, site: &str, succeeded: Option<bool>) {
    let claim = Claim::new(key.clone(), 10 * SECOND);
    granted(store, &ask_at(site, &claim)).await;
    pause(10 * MS).await;
    end(store, claim, succeeded).await;
}

async fn end(store: &impl LockBackend, claim: Claim, succeeded: Option<bool>) {
    let mut release = Release::new(claim);
    release.run = succeeded.map(|succeeded| JobRun::new(EVERY, succeeded));
    let freed = store.release(&release).await;
    assert!(freed.is_ok(), "{freed:?}");
}
