//! The uses of locks: leaders, jobs, permits, stripes, and locks inside locks, of real managers.

use std::time::{Duration, SystemTime};

use lock_core::testing::limit;
use lock_core::{LockError, LockManager, MemoryStore};
use lock_metrics::{MetricsHandle, builder};

use crate::support::{Scrape, eventually};

const HOUR: Duration = Duration::from_secs(3600);

fn observed() -> (MetricsHandle, LockManager) {
    let metrics = builder().build().unwrap();
    let locks = LockManager::builder(MemoryStore::new()).lint_lock_order(true).build().unwrap();
    locks.observe(metrics.observer());
    (metrics, locks)
}

fn of(metrics: &MetricsHandle, name: &str, lock: &str) -> Option<f64> {
    Scrape::read(&metrics.render()).find(name, &[("lock", lock)])
}

#[tokio::test]
#[limit]
async fn a_candidate_leads_or_does_not() {
    let (metrics, locks) = observed();
    drop(locks.lock("plain").with_label("plain").await.unwrap());
    assert_eq!(of(&metrics, "leader", "plain"), None, "a lock is no election");
    let election = locks.elect("billing").with_label("billing");
    let leads = election.campaign().await.unwrap();
    assert_eq!(of(&metrics, "leader", "billing"), Some(1.0));
    // A second candidate of this process changes nothing until it leads.
    let mut waiting = Box::pin(election.campaign());
    assert!(futures_poll(&mut waiting).await.is_none());
    assert_eq!(of(&metrics, "leader", "billing"), Some(1.0));
    leads.resign().await.unwrap();
    let leads = waiting.await.unwrap();
    assert_eq!(of(&metrics, "leader", "billing"), Some(1.0));
    leads.resign().await.unwrap();
    assert_eq!(of(&metrics, "leader", "billing"), Some(0.0));
    election.run(async |_| assert_eq!(of(&metrics, "leader", "billing"), Some(1.0))).await.unwrap();
    eventually("the resignation", || (of(&metrics, "leader", "billing") == Some(0.0)).then_some(()));
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_job_tells_when_it_succeeded_whichever_way_it_was_started() {
    let (metrics, locks) = observed();
    let before = Scrape::read(&metrics.render()).get("now_timestamp_seconds", &[]);
    let last = |lock: &str| of(&metrics, "last_success_timestamp_seconds", lock);
    let now = |lock: &str| last(lock).is_some_and(|at| at >= before - 0.1 && at < before + 3600.0);

    let job = |fail: bool| {
        let run = locks.lock("cron:method").with_label("method").at_most_every(HOUR).retry_failed();
        run.run(async move |_| if fail { Err(LockError::unavailable("the report failed")) } else { Ok(()) })
    };
    assert!(job(true).await.is_err());
    assert_eq!(last("method"), Some(0.0), "it failed");
    assert_eq!(of(&metrics, "job_period_seconds", "method"), Some(3600.0));
    job(false).await.unwrap();
    eventually("the release", || now("method").then_some(()));

    let worker = std::thread::spawn({
        let job = locks.lock("cron:blocking").with_label("blocking").at_most_every(HOUR);
        move || job.run_blocking(|_| Ok::<_, LockError>(()))
    });
    assert_eq!(worker.join().unwrap().unwrap(), Some(()));
    eventually("the release", || now("blocking").then_some(()));
    let ran = last("blocking");
    let again = locks.lock("cron:blocking").with_label("blocking").at_most_every(HOUR);
    assert_eq!(again.run(async |_| Ok::<_, LockError>(())).await.unwrap(), None);
    assert_eq!(last("blocking"), ran, "it was skipped");

    let fire =
        locks.lock("cron:fire").with_label("fire").once_at(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(before));
    fire.run(async |_| Ok::<_, LockError>(())).await.unwrap();
    eventually("the release", || now("fire").then_some(()));
    assert_eq!(of(&metrics, "job_period_seconds", "fire"), None);

    // A run that is dropped is none.
    let dropped = locks.lock("cron:dropped").with_label("dropped").at_most_every(HOUR);
    let mut run = Box::pin(dropped.run(async |_| std::future::pending::<Result<(), LockError>>().await));
    assert!(futures_poll(&mut run).await.is_none());
    drop(run);
    locks.shutdown(Duration::from_secs(5)).await;
    assert_eq!(last("dropped"), Some(0.0));
}

#[tokio::test]
#[limit]
async fn permits_stripes_and_nested_locks_are_told() {
    let (metrics, locks) = observed();
    for permits in [16, 8] {
        drop(locks.semaphore("uploads", permits).with_label("uploads").with_site("shop::upload").await.unwrap());
        let limit =
            Scrape::read(&metrics.render()).get("permits_limit", &[("lock", "uploads"), ("site", "shop::upload")]);
        assert_eq!(limit, f64::from(permits));
    }
    let stripes = locks.striped("stock", 16);
    drop(stripes.lock(7).with_label("stock").await.unwrap());
    assert_eq!(of(&metrics, "stripes", "stock"), Some(16.0));
    assert_eq!(of(&metrics, "stripes", "uploads"), None);
    let inner = || locks.lock("inner").with_label("inner");
    let outer = || locks.lock("outer").with_label("outer").reentrant();
    outer().run(async |_| outer().await.map(drop)).await.unwrap();
    let edge = || Scrape::read(&metrics.render()).find("order_edge", &[("held", "outer"), ("wanted", "inner")]);
    assert_eq!(edge(), None);
    outer().run(async |_| inner().await.map(drop)).await.unwrap();
    assert_eq!(edge(), Some(1.0));
    assert!(!metrics.render().contains("stock#"), "a key became a label");
}
