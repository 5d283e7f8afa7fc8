//! The inspector on a real Redis Cluster.

use std::time::Duration;

use lock_core::LockManager;
use lock_core::testing::{RedisCluster, Reply, limit};
use lock_metrics::{FleetInspector, builder};

use super::{last, of, scrape};
use crate::support::eventually;

const ELECTION: &str = "distributed-lock:inspector";

/// Any node of a cluster.
fn inspector(cluster: &RedisCluster) -> FleetInspector {
    FleetInspector::new(&cluster.masters()[0].url()).unwrap().with_pause(Duration::ZERO)
}

#[test]
#[limit]
fn the_locks_of_all_masters_are_counted_together() {
    let cluster = RedisCluster::start(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ttl = Duration::from_secs(600);
    let mut guards = Vec::new();
    for (at, master) in cluster.masters().iter().enumerate() {
        let (key, url) = (cluster.key_on(at, "order:"), master.url());
        let (holder, waiter) = runtime
            .block_on(async { (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap()) });
        guards.push(runtime.block_on(holder.lock(&*key).with_label("order").with_ttl(ttl).acquire()).unwrap());
        runtime.spawn(async move { waiter.lock(key).with_wait(ttl).acquire().await });
        master.command(&["SET", &cluster.key_on(at, "legacy:"), "nonce"]);
    }
    let metrics = builder().build().unwrap();
    let inspector = inspector(&cluster).with_prefix("legacy:", "legacy");
    let running = inspector.clone().with_interval(Duration::from_millis(50)).start(&metrics).unwrap();
    eventually("everybody is seen", || {
        let seen = scrape(&metrics);
        ((of(&seen, "held", "order"), of(&seen, "waiters", "order")) == (3.0, 3.0)).then_some(())
    });
    let seen = scrape(&metrics);
    assert_eq!((of(&seen, "held", "legacy"), of(&seen, "keys_without_ttl", "legacy")), (3.0, 3.0));
    // The inspector's own lock, which is on one of them, is not counted.
    assert_eq!((of(&seen, "held", "other"), seen.get("inspector_truncated", &[])), (0.0, 0.0));
    // A token begins with the millisecond of its grant.
    let oldest = guards.iter().map(|guard| guard.token().get() >> 20).min().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a double of seconds has milliseconds")]
    let oldest = oldest as f64 / 1e3;
    let start = of(&seen, "oldest_hold_start_timestamp_seconds", "order");
    // An age by the server's clock, converted to the clock of the process, a moment later.
    assert!((start - oldest).abs() < 1.0, "{start} is not the oldest of all, {oldest}");
    assert!((1.0..=600.0).contains(&of(&seen, "min_ttl_seconds", "order")));
    assert!(seen.get("inspector_last_success_timestamp_seconds", &[]) > 0.0);
    runtime.block_on(running.stop());
    for master in cluster.masters() {
        let found = master.command(&["EXISTS", ELECTION]);
        assert!(matches!(found, Reply::Int(0) | Reply::Error(_)), "the lock is given back: {found:?}");
    }

    // One budget for all masters.
    runtime.block_on(inspector.with_max_keys(200).inspect_once(&metrics)).unwrap();
    let seen = scrape(&metrics);
    assert_eq!((of(&seen, "held", "order"), seen.get("inspector_truncated", &[])), (2.0, 1.0));
}

#[test]
#[limit]
fn the_election_follows_its_lock_to_another_master() {
    let cluster = RedisCluster::start(2);
    let home = cluster.masters().iter().position(|master| master.command(&["EXISTS", ELECTION]) == Reply::Int(0));
    let (from, to) = if home == Some(0) { (0, 1) } else { (1, 0) };
    let [old, new] = [from, to].map(|at| &cluster.masters()[at]);
    old.command(&["SET", ELECTION, "somebody", "PX", "600000"]);
    let metrics = builder().build().unwrap();
    let _running = inspector(&cluster).with_interval(Duration::from_millis(50)).start(&metrics).unwrap();
    let asks = || old.command(&["INFO", "commandstats"]).text().contains("cmdstat_evalsha:");
    eventually("it asks to be elected", || asks().then_some(()));
    cluster.open_slot(ELECTION, from, to);
    // Together with the other keys that the lock left behind.
    let Reply::List(keys) = old.command(&["KEYS", "*"]) else { panic!("no list of keys") };
    cluster.move_keys(&keys.iter().map(Reply::text).collect::<Vec<_>>(), from, to);
    cluster.close_slot(ELECTION, from, to);
    assert_eq!(last(&metrics), 0.0);
    new.command(&["DEL", ELECTION]);
    eventually("it is elected", || (last(&metrics) > 0.0).then_some(()));
    assert_eq!(new.command(&["EXISTS", ELECTION]), Reply::Int(1));
}
