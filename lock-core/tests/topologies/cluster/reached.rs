//! Nodes whose addresses are not those that they announce, and nodes behind TLS.

use std::path::Path;

use lock_core::{LockManager, RedisStore};
use lock_testing::{RedisCluster, RedisServer, Reply, limit};

use crate::support::{SECOND, eventually, exists, take};

pub(super) fn set(master: &RedisServer, name: &str, value: &str) {
    assert_eq!(master.command(&["CONFIG", "SET", name, value]), Reply::Text("OK".to_owned()), "{name}");
}

/// Takes a lock on every master, and passes one on.
pub(super) async fn works(locks: &LockManager, cluster: &RedisCluster) {
    for (at, master) in cluster.masters().iter().enumerate() {
        let name = cluster.key_on(at, "lock:");
        let guard = take(locks, &name).await;
        assert!(exists(master, &name));
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn announced_addresses_are_reached_where_the_url_says_since_redis_7() {
    let cluster = RedisCluster::start(2);
    // The announced addresses do not have a listener.
    let announced = |at: usize| 1001 + at;
    for (at, master) in cluster.masters().iter().enumerate() {
        set(master, "cluster-announce-port", &announced(at).to_string());
    }
    let pairs: Vec<String> = cluster
        .masters()
        .iter()
        .enumerate()
        .map(|(at, master)| format!("127.0.0.1:{}>127.0.0.1:{}", announced(at), master.port()))
        .collect();
    let told = |master: &RedisServer| {
        let nodes = master.command(&["CLUSTER", "NODES"]).text().to_owned();
        (0..2).all(|at| nodes.contains(&format!("127.0.0.1:{}@", announced(at))))
    };
    eventually("both announce it", || cluster.masters().iter().all(told)).await;
    let first = format!("redis+cluster://127.0.0.1:{}", cluster.masters()[0].port());
    let locks = LockManager::connect(&format!("{first}?nat={}", pairs.join(","))).await.unwrap();
    works(&locks, &cluster).await;
    // A redirection names such an address too.
    let name = cluster.key_on(0, "moves:");
    let guard = take(&locks, &name).await;
    cluster.open_slot(&name, 0, 1);
    cluster.drain_slot(&name, 0, 1);
    guard.extend(60 * SECOND).await.unwrap();
    guard.release().await.unwrap();

    let without = LockManager::connect(&first).await.unwrap();
    let error = without.lock(&name).with_wait(SECOND).await.unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:100"), "{error}");
}

#[tokio::test]
#[limit]
async fn every_node_is_reached_over_tls_by_the_name_that_its_certificate_is_for() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/tls").join(name);
    let settings = RedisServer::builder().with_tls(&file("server.pem"), &file("server.key"));
    let cluster = RedisCluster::with(settings, 2);
    for master in cluster.masters() {
        // With tls-cluster it would be the port by itself.
        let port = master.tls_url("").rsplit_once(':').unwrap().1.to_owned();
        set(master, "cluster-announce-port", &port);
        set(master, "cluster-announce-hostname", "localhost");
        set(master, "cluster-preferred-endpoint-type", "hostname");
    }
    let told = |master: &RedisServer| {
        let Reply::List(ranges) = master.command(&["CLUSTER", "SLOTS"]) else { return false };
        !format!("{ranges:?}").contains("?")
    };
    eventually("both announce their names", || cluster.masters().iter().all(told)).await;
    let url = cluster.masters()[1].tls_url("localhost").replace("rediss://", "rediss+cluster://");
    let authority = std::fs::read(file("authority.pem")).unwrap();
    let store = RedisStore::builder(&url).certificate_authority(authority).build().unwrap();
    let locks = LockManager::builder(store).with_ttl(30 * SECOND).with_wait(30 * SECOND).build().unwrap();
    works(&locks, &cluster).await;
}
