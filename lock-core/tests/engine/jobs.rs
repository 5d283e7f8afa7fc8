//! Jobs that every instance starts and one of them runs, on virtual time.

mod remembered;

use std::time::{Duration, SystemTime};

use lock_core::testing::TestLocks;
use lock_core::{
    Job, KeyBuilder, LockError, LockErrorKind, LockEvent, LockEventKind, LockKey, LockManager, MemoryStore,
};
use lock_testing::limit;
use tokio::time::{advance, sleep};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn hourly(locks: &LockManager) -> Job {
    locks.lock("cron:report").at_most_every(HOUR)
}

fn at_tick(locks: &LockManager) -> Job {
    locks.lock("cron:report").once_every(HOUR)
}

async fn run(job: Job) -> Result<Option<()>, LockError> {
    job.run(async |_| Ok(())).await
}

/// Instances of a service: managers of their own on one store.
fn instances(count: usize) -> (MemoryStore, Vec<LockManager>) {
    let store = MemoryStore::new();
    let manager = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    let managers = (0..count).map(|_| manager()).collect();
    (store, managers)
}

/// Every instance starts at every tick, late by up to a tenth of the period, in any order: the work is done once for each
/// tick, none is swallowed and none is done twice.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_punctual_schedule_loses_no_tick_to_a_late_start() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (_, instances) = instances(3);
    for tick in 0..300 {
        let mut starts: Vec<(Duration, usize)> =
            (0..3).map(|instance| (Duration::from_secs(random.u64(0..359)), instance)).collect();
        starts.sort();
        let began = tokio::time::Instant::now();
        let mut runs = 0;
        for (late, instance) in starts {
            sleep(late.saturating_sub(began.elapsed())).await;
            let length = Duration::from_millis(random.u64(0..2_000));
            let ran = at_tick(&instances[instance])
                .run(async |_| {
                    sleep(length).await;
                    Ok::<_, LockError>(())
                })
                .await
                .unwrap();
            runs += u32::from(ran.is_some());
        }
        assert_eq!(runs, 1, "tick {tick}");
        sleep(HOUR.saturating_sub(began.elapsed())).await;
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_key_of_a_schedule_stays_taken_until_a_tenth_before_the_next_tick() {
    let locks = LockManager::for_tests();
    assert_eq!(run(at_tick(&locks)).await.unwrap(), Some(()));
    sleep(54 * 60 * SECOND - SECOND).await;
    assert_eq!(run(at_tick(&locks)).await.unwrap(), None, "after 53:59");
    sleep(2 * SECOND).await;
    assert_eq!(run(at_tick(&locks)).await.unwrap(), Some(()), "after 54:01");
    let mut record = locks.last_run("cron:report").await.unwrap().unwrap();
    record.without_success_for = HOUR;
    assert_eq!((record.every, record.overdue()), (HOUR, None), "the next run is due after the period, not before");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_job_runs_at_most_once_in_its_period() {
    let locks = LockManager::for_tests();
    let slow = hourly(&locks).run(async |_| {
        sleep(40 * 60 * SECOND).await;
        Ok::<_, LockError>(())
    });
    assert_eq!(slow.await.unwrap(), Some(()));
    sleep(20 * 60 * SECOND - SECOND).await;
    assert_eq!(run(hourly(&locks)).await.unwrap(), None, "after 59:59");
    sleep(2 * SECOND).await;
    assert_eq!(run(hourly(&locks)).await.unwrap(), Some(()), "after 60:01");
    // A body that takes longer than the period excludes the others for as long as it runs, and no longer.
    let other = locks.manager();
    let long = locks.lock("cron:long").at_most_every(HOUR);
    let (ran, ()) = tokio::join!(
        long.run(async |_| {
            sleep(3 * HOUR).await;
            Ok::<_, LockError>(())
        }),
        async {
            sleep(3 * HOUR - SECOND).await;
            assert_eq!(run(other.lock("cron:long").at_most_every(HOUR)).await.unwrap(), None);
        }
    );
    ran.unwrap();
    sleep(SECOND).await;
    assert_eq!(run(locks.lock("cron:long").at_most_every(HOUR)).await.unwrap(), Some(()));
}

async fn failing(locks: &TestLocks, job: Job) {
    let error = job.run(async |_| Err::<(), _>(LockError::unavailable("the printer is on fire"))).await.unwrap_err();
    assert!(error.to_string().contains("on fire"));
    sleep(SECOND).await;
    assert_eq!(locks.all_free(), run(hourly(locks)).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_failed_run_counts_unless_it_is_to_be_retried() {
    let locks = LockManager::for_tests();
    failing(&locks, hourly(&locks).retry_failed()).await;
    assert_eq!(run(hourly(&locks).retry_failed()).await.unwrap(), None, "the second one has succeeded");
    advance(HOUR).await;
    failing(&locks, hourly(&locks)).await;
    // A panic is a failure.
    for (retried, runs) in [(true, Some(())), (false, None)] {
        advance(HOUR).await;
        let manager = locks.manager();
        let panicked = tokio::spawn(async move {
            let job = if retried { hourly(&manager).retry_failed() } else { hourly(&manager) };
            job.run(async |_| -> Result<(), LockError> { panic!("a bug in the job") }).await
        });
        assert!(panicked.await.unwrap_err().is_panic());
        sleep(SECOND).await;
        assert_eq!(run(hourly(&locks)).await.unwrap(), runs, "retried: {retried}");
    }
}

/// A crash, as the store sees it: nobody renews and nobody releases.
async fn crash(manager: LockManager, job: Job) {
    let mut body = Box::pin(job.run(async |_| {
        std::future::pending::<()>().await;
        Ok::<_, LockError>(())
    }));
    let mut started = std::pin::pin!(sleep(SECOND));
    tokio::select! {
        _ = &mut body => panic!("the job has ended"),
        () = &mut started => {}
    }
    // Neither is ever polled or dropped again.
    let _ = Box::leak(Box::new((body, manager)));
}

#[test]
#[limit]
fn a_crash_frees_the_key_after_the_ttl_unless_it_counts() {
    let store = MemoryStore::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let build = |store: &MemoryStore| {
        LockManager::builder(store.clone()).drive_on_current_runtime().with_ttl(SECOND).build().unwrap()
    };
    for (key, counts, runs) in [("cron:a", false, Some(())), ("cron:b", true, None)] {
        let period = Duration::from_secs(20);
        let job = |manager: &LockManager| manager.lock(key).at_most_every(period);
        // The runtime that drove the manager ends: this is what a crash leaves.
        runtime().block_on(async {
            let manager = build(&store);
            let started = if counts { job(&manager).run_once_even_if_crashed() } else { job(&manager) };
            crash(manager, started).await;
        });
        runtime().block_on(async {
            let manager = build(&store);
            sleep(2 * SECOND).await;
            assert_eq!(run(job(&manager)).await.unwrap(), runs, "{key}");
        });
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_run_that_counts_even_if_crashed_can_be_retried_and_ends_in_time() {
    let locks = LockManager::for_tests();
    let job = || hourly(&locks).run_once_even_if_crashed();
    failing(&locks, job().retry_failed()).await;
    advance(HOUR).await;
    assert_eq!(run(job()).await.unwrap(), Some(()));
    advance(59 * 60 * SECOND).await;
    assert_eq!(run(job()).await.unwrap(), None);
    advance(2 * 60 * SECOND).await;
    assert_eq!(run(job()).await.unwrap(), Some(()));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn nothing_runs_if_the_key_cannot_be_kept_and_that_does_not_count() {
    let (store, instances) = instances(1);
    let (away, locks) = (store.clone(), &instances[0]);
    locks.observe(move |event: &LockEvent<'_>| {
        if let LockEventKind::Acquired { .. } = event.kind {
            away.set_away(true);
        }
    });
    let error =
        hourly(locks).run_once_even_if_crashed().run(async |_| -> Result<(), LockError> { panic!("it runs") }).await;
    assert_eq!(error.unwrap_err().kind(), LockErrorKind::Unavailable);
    store.set_away(false);
    sleep(SECOND).await;
    assert!(store.is_empty());
}

/// A lock for each recipient, whose names come from outside.
fn mail(to: &str) -> LockKey {
    KeyBuilder::new("mail:<to>").text("mail:").segment("to", to).finish().unwrap()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn no_value_of_a_key_is_taken_for_a_run() {
    let (_, instances) = instances(2);
    let noon = SystemTime::now();
    let seconds = noon.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(mail("ann@example.org").as_str(), "mail:ann@example.org", "as every other client writes it");
    let lookalikes = ["@", "#", "#@", ":", "%23@"].map(|mark| format!("ann{mark}{seconds}"));
    let mut held = Vec::new();
    for to in &lookalikes {
        held.push(instances[1].lock(mail(to)).without_waiting().await.unwrap());
    }
    let ann = || run(instances[0].lock(mail("ann")).once_at(noon));
    assert_eq!(ann().await.unwrap(), Some(()), "nobody else has what is hers");
    assert_eq!(ann().await.unwrap(), None);
    for to in &lookalikes {
        assert_eq!(run(instances[0].lock(mail(to)).once_at(noon)).await.unwrap(), Some(()), "{to}");
    }
    drop(held);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_fire_time_runs_once_however_late() {
    let (_, instances) = instances(3);
    let noon = SystemTime::now() - 5 * 24 * HOUR;
    let at = |instance: usize, time: SystemTime| run(instances[instance].lock("cron:bill").once_at(time));
    assert_eq!(at(0, noon).await.unwrap(), Some(()));
    for _ in 0..6 {
        // Seconds count, not what is below.
        assert_eq!(at(1, noon).await.unwrap(), None);
        sleep(24 * HOUR).await;
    }
    // Two ticks that start at the same moment are two runs.
    assert_eq!(at(1, noon + HOUR).await.unwrap(), Some(()));
    assert_eq!(at(2, noon + 2 * HOUR).await.unwrap(), Some(()));
    let late = noon - 2 * 24 * HOUR;
    let early = SystemTime::now() + 25 * HOUR;
    for (nonsense, says) in
        [(late, "unknown whether it ran"), (SystemTime::UNIX_EPOCH - SECOND, "before 1970"), (early, "at its time")]
    {
        let error = at(0, nonsense).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(at(0, early - 2 * HOUR).await.unwrap(), Some(()));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn mistakes_are_errors_and_not_skipped() {
    let locks = LockManager::for_tests();
    let error = run(locks.lock("cron:x").at_most_every(SECOND / 2)).await.unwrap_err();
    assert!(error.to_string().contains("at least 1s"), "{error}");
    for job in [locks.lock("cron:x").at_most_every(31 * 24 * HOUR), locks.lock("cron:x").once_every(34 * 24 * HOUR)] {
        let error = run(job).await.unwrap_err();
        assert!(error.to_string().contains("longer than the limit of 30 days; use once_at"), "{error}");
    }
    assert_eq!(run(locks.lock("cron:month").at_most_every(30 * 24 * HOUR)).await.unwrap(), Some(()));
    assert_eq!(run(locks.lock("cron:ticks").once_every(33 * 24 * HOUR)).await.unwrap(), Some(()));
    let error = run(locks.lock("").at_most_every(HOUR)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    locks.set_away(true);
    assert_eq!(run(hourly(&locks)).await.unwrap_err().kind(), LockErrorKind::Unavailable);
}

#[test]
#[limit]
fn synchronous_jobs_are_skipped_and_retried_too() {
    let locks = LockManager::in_memory();
    let job = || hourly(&locks).retry_failed();
    let failed = job().run_blocking(|_| Err::<(), _>(LockError::unavailable("on fire")));
    assert!(failed.unwrap_err().to_string().contains("on fire"));
    let token = job().run_blocking(|guard| Ok::<_, LockError>(guard.token())).unwrap();
    assert!(token.is_some());
    assert_eq!(job().run_blocking(|_| Ok::<_, LockError>(())).unwrap(), None);
}

#[tokio::test]
#[limit]
async fn a_job_shares_its_key_with_nobody() {
    let locks = LockManager::in_memory();
    for request in [locks.read("k"), locks.semaphore("k", 2)] {
        let error = run(request.at_most_every(HOUR)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains("one place"), "{error}");
    }
}

/// Starts the job on a runtime of its own, which then stops, or drops it while it runs.
fn cut_short(locks: &LockManager, job: Job, stop_runtime: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = locks.clone();
    let started = runtime.spawn(async move {
        let _keeps_the_manager = locks;
        let body = async |_: &_| std::future::pending::<Result<(), LockError>>().await;
        let _ = job.run(body).await;
    });
    runtime.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if !stop_runtime {
            started.abort();
            assert!(started.await.unwrap_err().is_cancelled());
        }
    });
    drop(runtime);
}

#[test]
#[limit]
fn a_run_that_is_dropped_or_whose_runtime_stops_counts_unless_it_is_to_be_retried() {
    let locks = LockManager::in_memory();
    for stop_runtime in [false, true] {
        for (retried, again) in [(false, None), (true, Some(()))] {
            let key = format!("cron:{stop_runtime}:{retried}");
            let job = || locks.lock(key.as_str()).with_ttl(600 * SECOND).at_most_every(HOUR);
            cut_short(&locks, if retried { job().retry_failed() } else { job() }, stop_runtime);
            let mut ran = job().run_blocking(|_| Ok::<_, LockError>(())).unwrap();
            // It is given back in the background.
            for _ in 0..500 {
                if ran == again {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
                ran = job().run_blocking(|_| Ok::<_, LockError>(())).unwrap();
            }
            assert_eq!(ran, again, "{key}");
        }
    }
}
