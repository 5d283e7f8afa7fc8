//! Locks on a Redis Cluster.

mod asking;
mod batches;
mod durability;
mod failover;
mod ipv6;
mod managed;
mod moves;
mod open_slots;
mod reached;
mod refusing;
mod schemes;
mod slot_inboxes;

use std::future::IntoFuture;
use std::pin::pin;

use lock_core::inspect::FleetReader;
use lock_core::{HolderInfo, LockBackend, LockErrorKind, LockKey, LockManager, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release};
use lock_testing::{EventLog, RedisCluster, RedisServer, Reply, limit};

use crate::support::{LONG, SECOND, all_told, cut_after, eventually, exists, locked_keys, locks_at, lost, take};

/// Names keys on every master, in their order.
fn keys(cluster: &RedisCluster, prefix: &str) -> Vec<String> {
    (0..cluster.masters().len()).map(|at| cluster.key_on(at, prefix)).collect()
}

#[tokio::test]
#[limit]
async fn a_lock_lies_at_the_master_of_its_slot() {
    let cluster = RedisCluster::start(3);
    // One node is enough to know the others.
    let one = format!("redis+cluster://127.0.0.1:{}", cluster.masters()[1].port());
    let (locks, others) = (LockManager::connect(&one).await.unwrap(), locks_at(&cluster.url()));
    for (name, master) in keys(&cluster, "lock:").iter().zip(cluster.masters()) {
        let guard = locks.lock(name).await.unwrap();
        assert!(exists(master, name), "{name}");
        let error = others.lock(name).without_waiting().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Busy);
        let holder = others.holder(name).await.unwrap().unwrap();
        assert_eq!(holder.info.unwrap().pid, std::process::id());
        let first = guard.token();
        guard.extend(60 * SECOND).await.unwrap();
        guard.release().await.unwrap();
        let second = others.lock(name).await.unwrap();
        assert!(second.token() > first);
        drop(second);
        eventually("a dropped lock is free", || !exists(master, name)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn waiters_are_granted_in_order_on_every_master() {
    let cluster = RedisCluster::start(3);
    let managers: Vec<LockManager> = (0..4).map(|_| locks_at(&cluster.url())).collect();
    let events = EventLog::default();
    managers.iter().for_each(|locks| locks.observe(events.clone()));
    for (at, name) in keys(&cluster, "lock:").iter().enumerate() {
        let guard = take(&managers[0], name).await;
        let mut waiting = tokio::task::JoinSet::new();
        for (place, locks) in managers.iter().enumerate().skip(1) {
            let (locks, key) = (locks.clone(), name.clone());
            waiting.spawn(async move { (place, locks.lock(key).await.unwrap()) });
            let queue = format!("{{{name}}}@queue");
            let length = Reply::Int(i64::try_from(place).unwrap());
            let master = &cluster.masters()[at];
            eventually("it waits in the queue", || master.command(&["ZCARD", &queue]) == length).await;
        }
        guard.release().await.unwrap();
        for expected in 1..4 {
            let (place, guard) = waiting.join_next().await.unwrap().unwrap();
            assert_eq!(place, expected);
            guard.release().await.unwrap();
        }
        assert_eq!(locked_keys(&cluster.masters()[at]), [""; 0]);
    }
    all_told(&events).await;
    // Told by the master, not found by asking again.
    let granted = events.paths().iter().filter(|path| **path == lock_core::GrantPath::Granted).count();
    assert_eq!(granted, 9, "{:?}", events.paths());
}

#[tokio::test]
#[limit]
async fn several_keys_are_taken_one_by_one_or_in_one_step_where_they_share_a_slot() {
    let cluster = RedisCluster::start(3);
    let locks = locks_at(&cluster.url());
    let spread = keys(&cluster, "lock:");
    let together = ["{t}:a", "{t}:b", "{t}:c"].map(str::to_owned);
    for names in [&spread[..], &together] {
        let all = locks.lock_all(names).await.unwrap();
        let other = locks_at(&cluster.url());
        for name in names {
            assert_eq!(other.lock(name).without_waiting().await.unwrap_err().kind(), LockErrorKind::Busy, "{name}");
        }
        drop(all);
        drop(other.lock_all(names).await.unwrap());
    }
    for master in cluster.masters() {
        eventually("all is free", || locked_keys(master).is_empty()).await;
    }
}

#[tokio::test]
#[limit]
async fn a_lost_lock_is_told_of_by_its_master() {
    let cluster = RedisCluster::start(2);
    let locks = locks_at(&cluster.url());
    let events = EventLog::default();
    locks.observe(events.clone());
    for (name, master) in keys(&cluster, "lock:").iter().zip(cluster.masters()) {
        let guard = locks.lock(name).with_ttl(LONG).with_renew(lock_core::Renew::Every(SECOND / 5)).await.unwrap();
        eventually("the lease is renewed, which arms the report", || events.count("Renewed") > 0).await;
        master.command(&["DEL", name]);
        assert_eq!(lost(&guard).await, lock_core::LossReason::Stolen);
    }
}

#[tokio::test]
#[limit]
async fn keys_whose_queue_would_lie_in_another_slot_are_refused() {
    let cluster = RedisCluster::start(1);
    let locks = locks_at(&cluster.url());
    for bad in ["a}", "{}a", "a{}b}", "}{"] {
        let error = locks.lock(bad).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{bad}");
        assert!(error.to_string().contains("share a slot"), "{error}");
    }
    for good in ["a", "{a}b", "x{a}}", "a{b"] {
        locks.lock(good).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn a_scheme_that_does_not_fit_the_server_is_named() {
    let single = RedisServer::start();
    let error = LockManager::connect(&single.url().replace("redis:", "redis+cluster:")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("write redis:// in the URL"), "{error}");

    for (bad, says) in [
        ("redis+cluster://:s3cret@h:1/2", "lie in its database 0"),
        ("redis+cluster://", "a host or a port is missing"),
        ("redis+cluster://h:1?db=1", "its query takes nat, each once"),
        ("redis+cluster://h:1?acks=many", "write acks=1"),
        ("redis+cluster://:s3cret@h:1,:7000", "a host or a port is missing"),
    ] {
        let error = RedisStore::new(bad).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{bad}");
        assert!(error.to_string().contains(says) && !error.to_string().contains("s3"), "{bad}: {error}");
    }
}

#[tokio::test]
#[limit]
async fn a_cluster_is_reached_through_any_node_that_is_up_and_refuses_wrong_credentials() {
    let mut cluster = RedisCluster::with(RedisServer::builder().with_password("open-sesame"), 3);
    let name = cluster.key_on(2, "lock:");
    let wrong = cluster.url().replace("sesame", "barley");
    let error = LockManager::connect(&wrong).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(!format!("{error:?}").contains("barley"));
    cluster.kill(0);
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    assert!(!format!("{locks:?}").contains("sesame"));
    take(&locks, &name).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_documented_permissions_are_enough_and_the_fleet_is_read_by_the_same_url() {
    let cluster = RedisCluster::start(2);
    let rules = include_str!("../../../stores/lock-redis/src/acl.txt").strip_prefix("ACL SETUSER app ").unwrap();
    for master in cluster.masters() {
        let rules = rules.split_whitespace().map(|rule| if rule == ">password" { ">pw" } else { rule });
        let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(rules).collect();
        assert_eq!(master.command(&words), Reply::Text("OK".to_owned()));
    }
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://app:pw@");
    let (locks, others) = (LockManager::connect(&url).await.unwrap(), locks_at(&url));
    let name = cluster.key_on(1, "lock:");
    let guard = take(&locks, &name).await;
    let waiting = tokio::spawn({
        let name = name.clone();
        async move { others.lock(name).await.map(drop) }
    });
    let queue = format!("{{{name}}}@queue");
    eventually("it waits", || exists(&cluster.masters()[1], &queue)).await;
    cluster.move_slot(&name, 1, 0);
    guard.extend(60 * SECOND).await.unwrap();

    let fleet = FleetReader::new(&url).unwrap();
    let entry = fleet.entry(guard.key()).await.unwrap().unwrap();
    assert_eq!((entry.waiters, entry.holder.info.unwrap().pid), (Some(1), std::process::id()));
    // The same with a node that is away before the others.
    let dead = url.replace("@", "@127.0.0.1:1,");
    assert!(FleetReader::new(&dead).unwrap().entry(guard.key()).await.unwrap().is_some());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// Each slot has a clock of its own. Were their tokens to exceed each other, every grant of another slot within a
/// millisecond would push the clocks one ahead of the time.
#[tokio::test]
#[limit]
async fn tokens_of_one_slot_do_not_push_those_of_another() {
    let cluster = RedisCluster::start(1);
    let store = RedisStore::new(&cluster.url()).unwrap();
    let ask = |name: &str| {
        let claim = Claim::new(LockKey::new(name).unwrap(), SECOND * 30);
        AcquireRequest::new(claim, HolderInfo::new("host", 1, "site"))
    };
    let mut newest = 0;
    for turn in 0..1000 {
        let request = ask(["a", "b", "c"][turn % 3]);
        let Attempt::Granted { token, .. } = store.try_acquire(&request).await.unwrap() else { panic!("it is free") };
        newest = newest.max(token.get());
        assert_eq!(store.release(&Release::new(request.claim)).await.unwrap(), Freed::Released);
    }
    let Reply::List(time) = cluster.masters()[0].command(&["TIME"]) else { panic!("no time") };
    let now: u64 = time[0].text().parse::<u64>().unwrap() * 1000 + time[1].text().parse::<u64>().unwrap() / 1000;
    // A token is 128 numbers of one of 8,192 draws of a millisecond.
    assert!(newest / 128 / 8192 <= now, "{} ms ahead", newest / 128 / 8192 - now);
}

#[tokio::test]
#[limit]
async fn an_acquire_that_is_dropped_anywhere_leaves_nothing_behind() {
    let cluster = RedisCluster::start(2);
    let names = keys(&cluster, "lock:");
    let known = locks_at(&cluster.url());
    for most in 0..12 {
        // A manager that must discover the cluster first, and a manager that knows it.
        for locks in [&locks_at(&cluster.url()), &known] {
            for name in &names {
                drop(cut_after(most, pin!(locks.lock(name).into_future())).await);
            }
        }
    }
    for master in cluster.masters() {
        eventually("all is free", || locked_keys(master).is_empty()).await;
    }
}

#[test]
#[limit]
fn callers_that_block_need_no_runtime() {
    let cluster = RedisCluster::start(2);
    let locks = locks_at(&cluster.url());
    for (name, master) in keys(&cluster, "lock:").iter().zip(cluster.masters()) {
        let guard = locks.lock(name).acquire_blocking().unwrap();
        assert!(exists(master, name));
        drop(guard);
    }
    drop(locks);
    // The last handle waits for what was dropped.
    assert!(cluster.masters().iter().all(|master| locked_keys(master).is_empty()));
}
