//! Locks on a cluster that count only when replicas have them: each master asks its own.

use lock_core::{LockErrorKind, LockManager, LockOptions, LossReason, Renew};
use lock_testing::{EventLog, RedisCluster, RedisServer, Reply, Stopwatch, limit};

use crate::support::{MS, SECOND, bounded, eventually, exists, locked_keys, lost, renewals, take};

async fn locks(cluster: &RedisCluster, durability: &str) -> LockManager {
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(30 * SECOND);
    LockManager::connect_with(&format!("{}?{durability}", cluster.url()), options).await.unwrap()
}

/// Returns whether a replica has a key, which it does not tell directly: its slot is the master's.
fn has(replica: &RedisServer, key: &str) -> bool {
    let Reply::List(keys) = replica.command(&["KEYS", key]) else { panic!("no list of keys") };
    !keys.is_empty()
}

/// Scenario 3 of the design, for each master by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_master_without_its_replica_grants_nothing_and_others_do() {
    let cluster = RedisCluster::start(2);
    let replicas = [0, 1].map(|master| cluster.start_replica_of(master));
    let [first, second] = [0, 1].map(|master| cluster.key_on(master, "lock:"));
    let locks = locks(&cluster, "acks=1").await;
    for (name, replica) in [&first, &second].into_iter().zip(&replicas) {
        let guard = take(&locks, name).await;
        assert!(has(replica, name), "it was granted, so the replica has it");
        guard.extend(60 * SECOND).await.unwrap();
        guard.release().await.unwrap();
    }
    let held = locks.lock(cluster.key_on(0, "held:")).with_ttl(3 * SECOND).await.unwrap();
    replicas[0].pause();
    let watch = Stopwatch::start();
    let error = locks.lock(&first).with_ttl(3 * SECOND).without_waiting().try_acquire().await.unwrap_err();
    // A command time-out.
    bounded("refusal of a master whose replica hangs, ttl 3 s", watch.elapsed(), 500 * MS);
    let master = format!("127.0.0.1:{} did not confirm within", cluster.masters()[0].port());
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains(&master) && error.to_string().contains("ask for fewer acks"), "{error}");
    eventually("it is undone", || !exists(&cluster.masters()[0], &first)).await;
    take(&locks, &second).await.release().await.unwrap();
    // No renewal counts any more.
    assert_eq!(lost(&held).await, LossReason::Unreachable);
    watch.assert_within(10 * SECOND, "a loss by unconfirmed renewals");
    drop(held);
    replicas[0].resume();
    take(&locks, &first).await.release().await.unwrap();
    for master in cluster.masters() {
        eventually("nothing is left", || locked_keys(master).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn every_replica_that_the_cluster_knows_is_asked_and_one_at_least() {
    let cluster = RedisCluster::start(2);
    let replicas = [0, 0].map(|master| cluster.start_replica_of(master));
    let [guarded, alone] = [0, 1].map(|master| cluster.key_on(master, "lock:"));
    let told = || {
        let slots = |master: &RedisServer| format!("{:?}", master.command(&["CLUSTER", "SLOTS"]));
        let named = |replica: &RedisServer| {
            cluster.masters().iter().all(|master| slots(master).contains(&replica.port().to_string()))
        };
        replicas.iter().all(named)
    };
    eventually("both masters tell of both replicas", told).await;
    let locks = locks(&cluster, "acks=all").await;
    take(&locks, &guarded).await.release().await.unwrap();
    // Each has 3 s, so that the master has time to answer on a busy machine, and only what it waits for has not come.
    let error = locks.lock(&alone).with_ttl(18 * SECOND).without_waiting().try_acquire().await.unwrap_err();
    // A round of its own, or what a round counted that had begun before.
    let uncounted = error.to_string().contains("that a replica has the lock");
    assert!(uncounted || error.to_string().contains("0 of 1 replicas"), "{error}");
    // One of two is not all.
    replicas[1].pause();
    let error = locks.lock(&guarded).with_ttl(18 * SECOND).without_waiting().try_acquire().await.unwrap_err();
    let uncounted = error.to_string().contains("that 2 replicas have the lock");
    assert!(uncounted || error.to_string().contains("1 of 2 replicas"), "{error}");
    replicas[1].resume();
    take(&locks, &guarded).await.release().await.unwrap();
}

/// The cluster was looked at before it came, and is looked at again only after half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_replica_that_came_after_the_last_look_is_one_of_all() {
    let cluster = RedisCluster::start(1);
    let name = cluster.key_on(0, "lock:");
    let first = cluster.start_replica_of(0);
    let locks = locks(&cluster, "acks=all").await;
    take(&locks, &name).await.release().await.unwrap();
    let second = cluster.start_replica_of(0);
    assert_eq!(cluster.masters()[0].command(&["WAIT", "2", "60000"]), Reply::Int(2), "it follows");
    second.pause();
    let error = locks.lock(&name).with_ttl(3 * SECOND).without_waiting().try_acquire().await.unwrap_err();
    // Refused while it was counted, or before.
    let uncounted = error.to_string().contains("did not confirm within");
    assert!(uncounted || error.to_string().contains("1 of 2 replicas"), "{error}");
    second.resume();
    let guard = take(&locks, &name).await;
    assert!(has(&first, &name) && has(&second, &name), "every replica has it");
    guard.release().await.unwrap();
}

/// The write that a confirmation needs goes to another slot of the same master.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lease_in_an_open_slot_is_confirmed_although_its_clock_has_gone() {
    let cluster = RedisCluster::start(2);
    let _replicas = [0, 1].map(|master| cluster.start_replica_of(master));
    let name = cluster.key_on(0, "lock:");
    let locks = locks(&cluster, "acks=1").await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock(&name).with_ttl(6 * SECOND).with_renew(Renew::Every(100 * MS)).await.unwrap();
    let Reply::List(keys) = cluster.masters()[0].command(&["KEYS", "distributed-lock:clock*"]) else {
        panic!("no keys")
    };
    cluster.open_slot(&name, 0, 1);
    let slot = |key: &str| cluster.masters()[0].command(&["CLUSTER", "KEYSLOT", key]);
    let clock = keys.iter().map(Reply::text).find(|clock| slot(clock) == slot(&name)).unwrap();
    cluster.move_keys(&[clock], 0, 1);
    renewals(&events, 5).await;
    assert_eq!((guard.ensure_held(), events.count("RenewFailed")), (Ok(()), 0));
    // Then the lock too, which the other master renews.
    cluster.move_keys(&[&name], 0, 1);
    renewals(&events, 5).await;
    assert_eq!((guard.ensure_held(), events.count("RenewFailed")), (Ok(()), 0));
    guard.release().await.unwrap();
    cluster.close_slot(&name, 0, 1);
}
