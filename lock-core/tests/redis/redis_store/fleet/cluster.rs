//! Reading the locks of a cluster through any of its nodes.

use std::time::Duration;

use lock_core::inspect::{FleetReader, Scan, ScanOptions};
use lock_core::{LockError, LockErrorKind, LockGuard, LockManager, OwnerId};
use lock_store::Freed;
use lock_testing::{RedisCluster, RedisServer, Reply, limit};

use super::{key, keys, scan};
use crate::support::{LONG, eventually, exists};

/// Takes a lock on the master that serves its key.
async fn take(server: &RedisServer, key: &str) -> (LockManager, LockGuard) {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock(key).with_ttl(LONG).with_site("shop::charge").acquire().await.unwrap();
    (locks, guard)
}

/// Takes a lock on each master. The keys come in the order of the masters.
async fn take_everywhere(cluster: &RedisCluster) -> (Vec<String>, Vec<(LockManager, LockGuard)>) {
    let (mut names, mut taken) = (Vec::new(), Vec::new());
    for (at, master) in cluster.masters().iter().enumerate() {
        names.push(cluster.key_on(at, &format!("lock:{at}:")));
        taken.push(take(master, &names[at]).await);
    }
    (names, taken)
}

fn node(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// Continues a scan that cannot be completed, until it fails.
async fn broken_off(mut walk: Scan<'_>) -> LockError {
    loop {
        match walk.next().await {
            Ok(batch) => assert!(batch.is_some(), "the scan is not complete"),
            Err(error) => {
                assert_eq!(error.kind(), LockErrorKind::Unavailable);
                return error;
            }
        }
    }
}

/// Makes a replica the master, without asking anybody.
fn take_over(replica: &RedisServer) {
    assert_eq!(replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Reply::Text("OK".to_owned()));
}

/// How many kinds of reads a server has executed.
fn reads(server: &RedisServer) -> usize {
    let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
    let read = |line: &&str| {
        ["scan", "getrange", "pttl", "zcount"].iter().any(|name| line.starts_with(&format!("cmdstat_{name}:calls=")))
    };
    // Refused commands are listed too, with zero calls.
    stats.lines().filter(read).filter(|line| !line.contains(":calls=0,")).count()
}

#[tokio::test]
#[limit]
async fn one_scan_reads_every_master_and_no_replica() {
    let cluster = RedisCluster::start(3);
    // Masters are read in the order of their names.
    let last = (0..3).max_by_key(|at| node(&cluster.masters()[*at])).unwrap();
    let replica = cluster.start_replica_of(last);
    let (names, _taken) = take_everywhere(&cluster).await;
    cluster.masters()[2].command(&["SET", &cluster.key_on(2, "lock:eternal:"), "nonce"]);
    let mut nodes: Vec<String> = cluster.masters().iter().map(node).collect();
    nodes.sort();
    for entrance in [&cluster.masters()[1], &replica] {
        let fleet = FleetReader::new(&entrance.url()).unwrap();
        assert_eq!(fleet.node(), node(entrance));
        let mut walk = fleet.scan(ScanOptions::new().with_foreign_prefix("lock:eternal:"));
        let mut found = Vec::new();
        while let Some(batch) = walk.next().await.unwrap() {
            found.extend(batch);
        }
        assert_eq!((walk.servers(), walk.is_truncated()), (nodes.iter().map(String::as_str).collect(), false));
        assert_eq!(found.iter().filter(|entry| entry.is_without_ttl()).count(), 1);
        found.retain(|entry| !entry.is_without_ttl());
        found.sort_by(|one, two| one.key.cmp(&two.key));
        assert_eq!(keys(&found), names);
        assert!(found.iter().all(|entry| entry.held_for.unwrap() < LONG && entry.holder.site() == "shop::charge"));
        // A single key is read from the master that serves it.
        for (name, master) in names.iter().zip(cluster.masters()) {
            assert_eq!(fleet.entry(&key(name)).await.unwrap().unwrap().holder.site(), "shop::charge");
            assert!(fleet.waiters(&key(name)).await.unwrap().is_empty());
            assert_eq!(fleet.store_of(&key(name)).await.unwrap().name(), node(master));
        }
        assert!(fleet.entry(&key(&cluster.key_on(2, "free:"))).await.unwrap().is_none());
    }
    assert_eq!([&cluster.masters()[last], &replica].map(reads), [4, 0]);

    // All masters share one budget.
    let fleet = FleetReader::new(&cluster.masters()[0].url()).unwrap();
    let (found, truncated) = scan(&fleet, ScanOptions::new().with_max_keys(200)).await;
    assert_eq!((found.len(), truncated), (2, true));
    let (found, truncated) = scan(&fleet, ScanOptions::new().with_max_keys(300)).await;
    assert_eq!((found.len(), truncated), (3, false));

    // A master that has become a replica since the masters were listed is not read either.
    let mut walk = fleet.scan(ScanOptions::new());
    walk.next().await.unwrap();
    take_over(&replica);
    let demoted = || cluster.masters()[last].command(&["INFO", "replication"]).text().contains("role:slave");
    eventually("the master hears of it", demoted).await;
    let error = broken_off(walk).await;
    assert!(error.to_string().contains(&format!("{} is no longer a master", nodes[2])), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lock_is_released_through_any_node() {
    let settings = RedisServer::builder().with_password("open-sesame");
    let cluster = RedisCluster::with(settings, 2);
    let name = cluster.key_on(1, "lock:");
    let (_locks, guard) = take(&cluster.masters()[1], &name).await;
    let other = LockManager::connect(&cluster.masters()[1].url()).await.unwrap();
    let waiting = tokio::spawn({
        let (other, name) = (other.clone(), name.clone());
        async move { other.lock(name).with_site("shop::refund").with_wait(LONG).acquire().await }
    });
    let fleet = FleetReader::new(&cluster.masters()[0].url()).unwrap();
    while fleet.entry(guard.key()).await.unwrap().unwrap().waiters == Some(0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A node may not know, or not say, its own host: then it is the host that was asked.
    for told in ["unknown-endpoint", "hostname", "ip"] {
        for master in cluster.masters() {
            master.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", told]);
        }
        let fleet = FleetReader::new(&cluster.masters()[0].url()).unwrap();
        assert_eq!(fleet.entry(guard.key()).await.unwrap().unwrap().holder.site(), "shop::charge", "{told}");
        assert_eq!(keys(&scan(&fleet, ScanOptions::new()).await.0), [&*name], "{told}");
    }
    let waiters = fleet.waiters(guard.key()).await.unwrap();
    assert_eq!((waiters.len(), &*waiters[0].info.as_ref().unwrap().site), (1, "shop::refund"));
    assert!(waiters[0].waiting_for < LONG);
    let freed = fleet.release(guard.key(), OwnerId::random(), "ana", "wrong").await.unwrap();
    assert_eq!((freed, guard.ensure_held()), (Freed::NotHeld, Ok(())));
    let owner = fleet.entry(guard.key()).await.unwrap().unwrap().holder.owner.unwrap();
    assert_eq!(fleet.release(guard.key(), owner, "ana", "stuck").await.unwrap(), Freed::Released);
    let next = waiting.await.unwrap().unwrap();
    assert_eq!(fleet.entry(guard.key()).await.unwrap().unwrap().holder.site(), "shop::refund");
    assert!(next.token() > guard.token());
    assert!(!format!("{fleet:?}").contains("sesame"));
}

#[tokio::test]
#[limit]
async fn locks_are_seen_once_while_their_slot_is_moved() {
    let cluster = RedisCluster::start(2);
    // Masters are read in the order of their names. The lock goes from the last to the first.
    let (from, to) = if node(&cluster.masters()[0]) < node(&cluster.masters()[1]) { (1, 0) } else { (0, 1) };
    let tag = cluster.key_on(from, "t");
    let [goes, follows, stays] = ["goes", "follows", "stays"].map(|name| format!("{{{tag}}}:{name}"));
    let server = &cluster.masters()[from];
    let _taken = [take(server, &goes).await, take(server, &follows).await, take(server, &stays).await];
    let elsewhere = cluster.key_on(to, "lock:");
    let _elsewhere = take(&cluster.masters()[to], &elsewhere).await;
    let mut all = [&*stays, &follows, &goes, &elsewhere];
    all.sort_unstable();
    let fleet = FleetReader::new(&cluster.masters()[0].url()).unwrap();
    let go = |name: &str| cluster.move_keys(&[name, &format!("{name}:@queue")], from, to);

    // The commands that a reader needs, according to the documentation.
    let (_, needed) =
        include_str!("../../../../../stores/lock-redis/src/acl.txt").trim_end().rsplit_once('\n').unwrap();
    for master in cluster.masters() {
        let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*"];
        let words: Vec<&str> = user.into_iter().chain(needed.split_whitespace()).collect();
        assert_eq!(master.command(&words), Reply::Text("OK".to_owned()));
    }
    let reader = FleetReader::new(&format!("redis://app:pw@{}", node(&cluster.masters()[0]))).unwrap();

    cluster.open_slot(&tag, from, to);
    go(&goes);
    assert!(exists(server, &stays));
    assert_eq!(keys(&scan(&reader, ScanOptions::new()).await.0), all);
    for name in [&stays, &goes] {
        // Its queue does not exist, and is looked for on both masters.
        assert_eq!(fleet.entry(&key(name)).await.unwrap().unwrap().waiters, Some(0), "{name}");
        assert!(fleet.waiters(&key(name)).await.unwrap().is_empty());
        let owner = fleet.entry(&key(name)).await.unwrap().unwrap().holder.owner.unwrap();
        let error = fleet.release(&key(name), owner, "ana", "stuck").await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("try again"), "{error}");
    }

    // First one lock and then a whole slot moves to a master that has been read already.
    for close in [false, true] {
        let mut walk = reader.scan(ScanOptions::new());
        let mut found = walk.next().await.unwrap().unwrap();
        assert_eq!(walk.servers(), [node(&cluster.masters()[to])]);
        if close {
            // With the clock of the slot.
            cluster.drain_slot(&tag, from, to);
            cluster.close_slot(&tag, from, to);
        } else {
            go(&follows);
        }
        while let Some(batch) = walk.next().await.unwrap() {
            found.extend(batch);
        }
        found.sort_by(|one, two| one.key.cmp(&two.key));
        assert_eq!(keys(&found), all);
    }
    let owner = fleet.entry(&key(&goes)).await.unwrap().unwrap().holder.owner.unwrap();
    assert_eq!(fleet.release(&key(&goes), owner, "ana", "stuck").await.unwrap(), Freed::Released);
}

#[tokio::test]
#[limit]
async fn a_dead_master_is_named_and_after_the_failover_its_replica_is_read() {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let (names, _taken) = take_everywhere(&cluster).await;
    // Keys that the replica has not received are lost with its master.
    let size = |server: &RedisServer| server.command(&["DBSIZE"]);
    eventually("the replica has it all", || size(&replica) == size(&cluster.masters()[0])).await;
    let dead = node(&cluster.masters()[0]);
    // One is a client of the master that dies, the other of one that lives.
    let fleets = [0, 1].map(|at| FleetReader::new(&cluster.masters()[at].url()).unwrap());
    for fleet in &fleets {
        assert_eq!(keys(&scan(fleet, ScanOptions::new()).await.0), names);
    }
    cluster.kill(0);
    for fleet in &fleets {
        let error = broken_off(fleet.scan(ScanOptions::new())).await;
        assert!(error.to_string().contains(&dead), "{error}");
        let error = fleet.entry(&key(&names[0])).await.unwrap_err();
        assert!(error.to_string().contains(&dead), "{error}");
        assert!(fleet.entry(&key(&names[2])).await.unwrap().is_some());
    }
    take_over(&replica);
    for fleet in &fleets {
        while fleet.entry(&key(&names[0])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(keys(&scan(fleet, ScanOptions::new()).await.0), names);
        let store = fleet.store_of(&key(&names[0])).await.unwrap();
        assert_eq!(store.name(), node(&replica));
    }
}

#[tokio::test]
#[limit]
async fn a_node_without_its_cluster_is_no_empty_fleet() {
    let lonely = RedisServer::builder().with("cluster-enabled", "yes").start();
    let fleet = FleetReader::new(&lonely.url()).unwrap();
    let error = fleet.scan(ScanOptions::new()).next().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("16384 of the 16384 slots"), "{error}");
    assert!(error.to_string().contains(&node(&lonely)), "{error}");

    // A scan is not complete either if a master does not let us ask about its slots.
    lonely.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+scan", "+getrange", "+pttl", "+zcount", "+time"]);
    let fleet = FleetReader::new(&format!("redis://app:pw@{}", node(&lonely))).unwrap();
    let error = fleet.scan(ScanOptions::new()).next().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("tell who serves which slot"), "{error}");
}
