//! Clusters whose nodes announce IPv6 addresses.

use lock_core::LockManager;
use lock_core::inspect::FleetReader;
use lock_testing::{RedisCluster, RedisServer, RedisServerBuilder, limit};

use super::failover::{synced, take_over};
use super::reached::works;
use crate::support::{SECOND, eventually, exists, take};

/// The other address is for the test itself.
fn node() -> RedisServerBuilder {
    RedisServer::builder().with("bind", "127.0.0.1 ::1").with("cluster-announce-ip", "::1")
}

/// Waits until every master names all of them by addresses that end in these ports.
async fn announced(cluster: &RedisCluster, ports: &[u16]) {
    let told = |master: &RedisServer| {
        let nodes = master.command(&["CLUSTER", "NODES"]).text().to_owned();
        ports.iter().all(|port| nodes.contains(&format!(" ::1:{port}@")))
    };
    eventually("every master is known by its announced address", || cluster.masters().iter().all(told)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn slots_are_moved_and_a_failover_is_followed_over_ipv6() {
    let mut cluster = RedisCluster::with(node(), 3);
    let ports: Vec<u16> = cluster.masters().iter().map(RedisServer::port).collect();
    announced(&cluster, &ports).await;
    let replica = cluster.start_replica_of(0);
    let url = format!("redis+cluster://[::1]:{}", ports[1]);
    let locks = LockManager::connect(&url).await.unwrap();
    works(&locks, &cluster).await;
    for master in cluster.masters() {
        assert!(master.command(&["CLIENT", "LIST"]).text().contains(" addr=[::1]:"));
    }
    // A node that is asked in spite of a move names the other by such an address: as ASK, then as MOVED.
    let name = cluster.key_on(0, "moves:");
    let guard = take(&locks, &name).await;
    cluster.open_slot(&name, 0, 2);
    cluster.drain_slot(&name, 0, 2);
    guard.extend(60 * SECOND).await.unwrap();
    cluster.close_slot(&name, 0, 2);
    guard.extend(60 * SECOND).await.unwrap();
    let entry = FleetReader::new(&url).unwrap().entry(guard.key()).await.unwrap().unwrap();
    assert_eq!(entry.holder.info.unwrap().pid, std::process::id());
    guard.release().await.unwrap();

    let name = cluster.key_on(0, "held:");
    let held = take(&locks, &name).await;
    synced(&cluster.masters()[0], &replica).await;
    cluster.kill(0);
    take_over(&replica);
    let next = locks.lock(cluster.key_on(0, "next:")).with_wait(30 * SECOND).await.unwrap();
    assert!(exists(&replica, next.key().as_str()));
    held.release().await.unwrap();
    assert!(!exists(&replica, &name));
}

#[tokio::test]
#[limit]
async fn nodes_are_reached_over_tls_at_ipv6_addresses_that_their_certificate_is_for() {
    use lock_core::RedisStore;

    use super::reached::set;
    use crate::support::{Authority, Scratch};

    let (authority, folder) = (Authority::new(), Scratch::new());
    let (certificate, key) = authority.issue("::1");
    let [certificate, key] = [("server.pem", certificate), ("server.key", key)].map(|(name, text)| {
        let path = std::path::PathBuf::from(folder.path(name));
        std::fs::write(&path, text).unwrap();
        path
    });
    let cluster = RedisCluster::with(node().with_tls(&certificate, &key), 2);
    let url = |master: &RedisServer| master.tls_url("[::1]");
    let ports: Vec<u16> =
        cluster.masters().iter().map(|master| url(master).rsplit_once(':').unwrap().1.parse().unwrap()).collect();
    for (master, port) in cluster.masters().iter().zip(&ports) {
        // With tls-cluster it would be the port by itself.
        set(master, "cluster-announce-port", &port.to_string());
    }
    announced(&cluster, &ports).await;
    let url = url(&cluster.masters()[0]).replace("rediss://", "rediss+cluster://");
    let store = RedisStore::builder(&url).certificate_authority(authority.pem()).build().unwrap();
    let locks = LockManager::builder(store).with_ttl(30 * SECOND).with_wait(30 * SECOND).build().unwrap();
    works(&locks, &cluster).await;
}
