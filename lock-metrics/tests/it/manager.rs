//! A real manager, observed: the core sends the events that these metrics expect.

use std::time::Duration;

use lock_core::{AnyBackend, LockError, LockManager, LockRequest, MemoryStore, Quorum};
use lock_metrics::builder;
use lock_testing::{RedisCluster, limit};

use crate::support::{Labels, Scrape, eventually};

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

/// Runs something under one lock and then another.
async fn nested(outer: LockRequest, inner: LockRequest) -> Result<(), LockError> {
    outer.run(async |_| inner.run(async |_| Ok(())).await).await
}

#[tokio::test]
#[limit]
async fn locks_taken_in_both_orders_are_counted_once_with_the_lock_taken_second() {
    let metrics = builder().build().unwrap();
    let locks = LockManager::in_memory();
    locks.observe(metrics.observer());
    for id in 0..2 {
        let cart = || locks.lock(format!("cart:{id}")).with_label("cart");
        let stock = || locks.lock(format!("stock:{id}")).with_label("stock");
        nested(cart(), stock()).await.unwrap();
        nested(stock(), cart()).await.unwrap();
    }
    let scrape = Scrape::read(&metrics.render());
    assert_eq!(scrape.get("order_inversions_total", &[("lock", "cart")]), 1.0);
    assert_eq!(scrape.get("order_inversions_total", &[("lock", "stock")]), 0.0);
}

#[tokio::test]
#[limit]
async fn a_deadlock_is_counted_by_its_victim_and_by_the_other_member() {
    let metrics = builder().build().unwrap();
    let locks = LockManager::in_memory();
    locks.observe(metrics.observer());
    let deadlocks = |role| Scrape::read(&metrics.render()).get("deadlocks_total", &[("role", role)]);
    assert_eq!([deadlocks("victim"), deadlocks("member")], [0.0, 0.0]);
    // Each waits for the other to hold its first lock before it asks for its second.
    let both = tokio::sync::Barrier::new(2);
    let crossing = async |first: &str, second: &str| {
        let inner = locks.lock(second.to_owned()).with_wait(Duration::from_secs(60));
        locks
            .lock(first.to_owned())
            .run(async |_| {
                both.wait().await;
                inner.run(async |_| Ok::<_, LockError>(())).await
            })
            .await
    };
    let ends = tokio::join!(crossing("a", "b"), crossing("b", "a"));
    assert!(ends.0.is_ok() != ends.1.is_ok(), "{ends:?}");
    assert_eq!([deadlocks("victim"), deadlocks("member")], [1.0, 1.0]);
}

#[tokio::test(start_paused = true)]
#[limit]
#[expect(clippy::disallowed_methods, reason = "on virtual time")]
async fn what_happens_to_the_members_of_a_quorum_is_exported() {
    let metrics = builder().build().unwrap();
    let stores = ["a", "b", "c"].map(|name| (name, MemoryStore::new()));
    let members = stores.clone().map(|(name, store)| AnyBackend::new(store).named(name));
    let locks = LockManager::builder(Quorum::of(members).unwrap()).drive_on_current_runtime().build().unwrap();
    locks.observe(metrics.observer());
    let ttl = Duration::from_secs(6);
    let guard = locks.lock("k").with_ttl(ttl).await.unwrap();
    tokio::time::sleep(ttl).await;
    let scrape = Scrape::read(&metrics.render());
    let of = |scrape: &Scrape, name, state| scrape.get(name, &[("backend", "a,b,c"), ("state", state)]);
    let members =
        |scrape: &Scrape| ["counted", "excluded", "away", "disagrees"].map(|state| of(scrape, "quorum_members", state));
    assert_eq!(members(&scrape), [3.0, 0.0, 0.0, 0.0]);
    assert_eq!(scrape.get("quorum_majority", &[("backend", "a,b,c")]), 2.0);
    assert_eq!(scrape.get("quorum_degraded_holds", &[("backend", "a,b,c")]), 0.0);
    let rounds = |phase| scrape.get("quorum_rounds_total", &[("backend", "a,b,c"), ("phase", phase)]);
    assert!(rounds("first") >= 1.0 && rounds("second") <= rounds("first"), "{} {}", rounds("first"), rounds("second"));
    assert_eq!(scrape.get("quorum_repairs_total", &[("backend", "a")]), 0.0);
    // It is given the claim again by the next renewal, and says at the next vote that its data are young.
    stores[0].1.lose_data();
    tokio::time::sleep(ttl).await;
    drop(locks.lock("other").with_ttl(ttl).await.unwrap());
    tokio::time::sleep(ttl).await;
    let scrape = Scrape::read(&metrics.render());
    let repairs = |node| scrape.get("quorum_repairs_total", &[("backend", node)]);
    assert_eq!(["a", "b", "c"].map(repairs), [1.0, 0.0, 0.0]);
    assert_eq!(members(&scrape), [2.0, 1.0, 0.0, 0.0]);
    assert_eq!(scrape.get("quorum_degraded_holds", &[("backend", "a,b,c")]), 0.0, "it was given the claim again");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn slots_that_move_and_the_redirections_of_their_old_masters_are_counted() {
    let cluster = RedisCluster::start(2);
    let metrics = builder().build().unwrap();
    let key = cluster.key_on(0, "k");
    let stuck = cluster.key_on(0, "stuck");
    cluster.open_slot(&stuck, 0, 1);
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    locks.observe(metrics.observer());
    locks.lock(&key).await.unwrap().release().await.unwrap();
    let total = |name: &str, label: (&str, &str)| -> f64 {
        let scrape = Scrape::read(&metrics.render());
        let name = format!("distributed_lock_{name}");
        let has = |labels: &Labels| labels.get(label.0).map(String::as_str) == Some(label.1);
        scrape
            .series
            .iter()
            .filter(|((series, labels), _)| *series == name && has(labels))
            .map(|(_, value)| value)
            .sum()
    };
    assert_eq!(total("topology_changes_total", ("change", "slots")), 0.0, "the first look is no change");
    for master in cluster.masters() {
        let node = format!("127.0.0.1:{}", master.port());
        let open = || Scrape::read(&metrics.render()).find("slots_open", &[("backend", &node)]);
        eventually("each end of the open slot is counted", || (open() == Some(1.0)).then_some(()));
    }
    cluster.close_slot(&stuck, 0, 1);
    cluster.move_slot(&key, 0, 1);
    locks.lock(&key).await.unwrap().release().await.unwrap();
    eventually("a redirection", || (total("redirections_total", ("kind", "moved")) >= 1.0).then_some(()));
    eventually("a move", || (total("topology_changes_total", ("change", "slots")) >= 1.0).then_some(()));
}

#[tokio::test(start_paused = true)]
#[limit]
#[expect(clippy::disallowed_methods, reason = "on virtual time")]
async fn the_short_grant_of_a_queue_is_raised_before_it_is_renewed() {
    let (metrics, store) = (builder().build().unwrap(), MemoryStore::new());
    let manager = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    let (one, two) = (manager(), manager());
    two.observe(metrics.observer());
    let guard = one.lock("k").await.unwrap();
    let request = two.lock("k").with_label("k").with_ttl(Duration::from_secs(30)).with_wait(Duration::from_secs(60));
    let mut waiting = tokio::task::JoinSet::from_iter([async move { request.acquire().await.unwrap() }]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    guard.release().await.unwrap();
    let guard = waiting.join_next().await.unwrap().unwrap();
    let of = |name: &str, labels: &[(&str, &str)]| {
        Scrape::read(&metrics.render()).get(name, &[&[("lock", "k")], labels].concat())
    };
    assert_eq!(of("grants_total", &[("path", "granted")]), 1.0);
    // Its first answer has raised it from three seconds to thirty.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let raised = of("lease_min_expiry_timestamp_seconds", &[]) - of("oldest_hold_start_timestamp_seconds", &[]);
    assert!(raised > 20.0, "{raised}");
    assert_eq!((of("renewals_total", &[("outcome", "ok")]), of("lease_remaining_ratio_count", &[])), (0.0, 0.0));
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(of("renewals_total", &[("outcome", "ok")]), 1.0);
    let share = of("lease_remaining_ratio_sum", &[]);
    assert!((0.6..0.7).contains(&share), "two thirds are left: {share}");
    guard.release().await.unwrap();
}
