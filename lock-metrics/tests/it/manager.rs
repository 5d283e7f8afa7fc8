//! A real manager, observed: the core sends the events that these metrics expect.

use std::time::Duration;

use lock_core::LockManager;
use lock_core::testing::limit;
use lock_metrics::builder;

use crate::support::{Scrape, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_contended_lock_of_a_real_manager() {
    let metrics = builder().build().unwrap();
    let locks = LockManager::in_memory();
    locks.observe(metrics.observer());
    let scrape = || Scrape::read(&metrics.render());
    let sum = |scrape: &Scrape, name: &str| -> f64 {
        let name = format!("distributed_lock_{name}");
        scrape.series.iter().filter(|((series, _), _)| *series == name).map(|(_, value)| value).sum()
    };

    let guard = locks.lock("lock:job:1").acquire().await.unwrap();
    let waiter = tokio::task::JoinSet::from_iter([{
        let locks = locks.clone();
        let request = locks.lock("lock:job:1").with_wait(Duration::from_secs(120));
        async move { request.acquire().await.unwrap().release().await.unwrap() }
    }]);
    eventually("a waiter", || (sum(&scrape(), "waiters") == 1.0).then_some(()));
    let seen = scrape();
    assert_eq!(sum(&seen, "held"), 1.0);
    assert_eq!(metrics.live_locks().filter(|row| row.key.as_str() == "lock:job:1").count(), 2);
    assert!(locks.lock("lock:job:1").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    waiter.join_all().await;
    drop(locks.lock("lock:job:2").acquire().await.unwrap());
    locks.shutdown(Duration::from_secs(5)).await;

    let seen = eventually("the last release", || Some(scrape()).filter(|seen| sum(seen, "held") == 0.0));
    assert_eq!(sum(&seen, "waiters"), 0.0);
    assert_eq!(sum(&seen, "acquisitions_total"), 4.0);
    assert_eq!(sum(&seen, "grants_total"), 3.0);
    assert_eq!(sum(&seen, "hold_seconds_count"), 3.0);
    assert_eq!(sum(&seen, "releases_total") + sum(&seen, "lost_total"), 3.0);
    assert!(!metrics.render().contains("lock:job:"), "a key became a label");
    assert_eq!(metrics.live_locks().count(), 0);
}
