//! The servers behind each kind of URL.

use std::time::Duration;

use lock_core::store::{MemberList, QuorumMember};
use lock_core::{LockManager, LossReason, RedisStore};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Stopwatch, limit};
use serde_json::Value;

use crate::program::{Ended, lockctl_at};

/// Asks until the answer is as wanted.
#[expect(clippy::disallowed_methods, reason = "in the thread of a test")]
fn until(what: &str, url: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let watch = Stopwatch::start();
    loop {
        let json = lockctl_at(url, &["topology", "--json"]).json();
        if is_so(&json) {
            return json;
        }
        assert!(watch.elapsed() < Duration::from_secs(20), "{what}: {json:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn parts(json: &Value) -> Vec<&str> {
    json["nodes"].as_array().unwrap().iter().map(|node| node["part"].as_str().unwrap()).collect()
}

#[track_caller]
fn assert_says(ended: &Ended, says: &[&str]) {
    for said in says {
        assert!(ended.stdout.contains(said), "{said}: {ended:?}");
    }
}

fn redlock(servers: &[RedisServer]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("redlock://{}", hosts.join(","))
}

#[test]
#[limit]
fn a_server_and_its_replicas() {
    let mut master = RedisServer::builder().with("repl-diskless-sync-delay", "0").start();
    let ended = lockctl_at(&master.url(), &["topology"]);
    ended.assert_code(0);
    assert_says(&ended, &["0 replicas", "durability master: no replica takes over from a master"]);
    let place = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().with("replicaof", &place).start();
    let json = until("a replica", &master.url(), |json| {
        json["nodes"][0]["replicas"] == 1 && json["nodes"][1]["problem"].is_null()
    });
    assert_eq!(parts(&json), ["master", "replica"], "{json}");
    assert_eq!((&json["kind"], &json["nodes"][0]["min_replicas"]), (&"server".into(), &0.into()));
    assert_says(&lockctl_at(&master.url(), &["topology"]), &["a failover may lose locks", "add acks=1"]);
    master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_says(&lockctl_at(&master.url(), &["topology"]), &["1 replica, 1 needed", "a master that is cut off"]);
    let confirmed = lockctl_at(&format!("{}?acks=1", master.url()), &["topology"]);
    assert_says(&confirmed, &["durability acks=1: locks count when"]);
    let ended = lockctl_at(&replica.url(), &["topology"]);
    ended.assert_code(3);
    assert_says(&ended, &["it is a replica, and gives no locks"]);
    master.kill();
    let ended = lockctl_at(&master.url(), &["topology", "--json"]);
    ended.assert_code(3);
    let json = ended.json();
    assert!(json["gives_locks"] == false && json["nodes"][0]["problem"].is_string(), "{json}");
}

#[test]
#[limit]
fn sentinels_and_what_they_name() {
    let servers = RedisSentinels::builder().with_replicas(1).start();
    let json = until("all are known", &servers.url(), |json| {
        parts(json) == ["master", "replica", "sentinel", "sentinel", "sentinel"]
    });
    let master = format!("127.0.0.1:{}", servers.servers()[0].port());
    assert_eq!(json["kind"], "sentinel");
    for sentinel in &json["nodes"].as_array().unwrap()[2..] {
        assert!(sentinel["names"] == master.as_str() && sentinel["problem"].is_null(), "{json:#}");
    }
    let ended = lockctl_at(&servers.url(), &["topology"]);
    ended.assert_code(0);
    assert_says(&ended, &[&format!("at {master}, 1 replica")]);
    servers.sentinels()[2].pause();
    let ended = lockctl_at(&servers.url(), &["topology"]);
    servers.sentinels()[2].resume();
    ended.assert_code(0);
    assert!(ended.stdout.contains("timed out") || ended.stdout.contains("did not answer"), "{ended:?}");
}

#[test]
#[limit]
fn a_cluster_with_a_slot_left_open_and_a_master_gone() {
    let mut cluster = RedisCluster::start(3);
    let key = cluster.key_on(0, "k");
    cluster.open_slot(&key, 0, 1);
    let url = cluster.url();
    let ended = lockctl_at(&url, &["topology", "--json"]);
    ended.assert_code(0);
    let json = ended.json();
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!((&json["kind"], parts(&json)), (&"cluster".into(), vec!["master"; 3]), "{json:#}");
    assert_eq!(nodes.iter().map(|node| node["slots"].as_u64().unwrap()).sum::<u64>(), 16384);
    assert_eq!(nodes.iter().map(|node| node["slots_open"].as_u64().unwrap()).sum::<u64>(), 2, "at both ends");
    assert_says(&lockctl_at(&url, &["topology"]), &["1 half moved"]);
    cluster.kill(2);
    let ended = lockctl_at(&url, &["topology"]);
    ended.assert_code(3);
    assert_says(&ended, &["cannot connect"]);
}

#[tokio::test]
#[limit]
async fn a_quorum_and_which_of_its_members_count() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let url = redlock(&servers);
    let ended = lockctl_at(&url, &["topology"]);
    ended.assert_code(3);
    assert_says(&ended, &["new data: counts max_ttl after its next vote", "0 of 3 members count"]);
    assert_says(
        &ended,
        &["no lock is granted, until max_ttl after the next vote; for a new quorum, see `lockctl quorum init`"],
    );
    let remembers = lockctl_at(&format!("{url}?restarts=remember"), &["topology"]);
    remembers.assert_code(0);
    assert_says(&remembers, &["3 of 3 members count"]);
    lockctl_at(&url, &["quorum", "init"]).assert_code(0);
    let ended = lockctl_at(&url, &["topology"]);
    ended.assert_code(0);
    assert_says(&ended, &["3 of 3 members count, 2 must grant a lock: a minority may fail"]);
    let locks = LockManager::connect(&url).await.unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    // Reborn: what it gave before is gone, as the next vote finds.
    servers[0].command(&["FLUSHALL"]);
    locks.lock("k").await.unwrap().release().await.unwrap();
    servers[1].kill();
    let json = lockctl_at(&url, &["topology", "--json"]).json();
    let nodes = json["nodes"].as_array().unwrap();
    assert!(nodes[0]["excluded_for_ms"].as_u64().is_some_and(|left| left > 30_000), "{json:#}");
    assert!(nodes[1]["problem"].is_string() && nodes[2]["counts"] == true, "{json:#}");
    assert!(nodes[2]["member_lists"][0].as_str().unwrap().starts_with("2|60000|127.0.0.1:"), "{json:#}");
    assert_eq!((&json["gives_locks"], &json["majority"]), (&false.into(), &2.into()));
    // A replica has no vote of its own.
    let place = format!("127.0.0.1 {}", servers[2].port());
    let replica = RedisServer::builder().with("replicaof", &place).start();
    let members = format!("{url},127.0.0.1:{}", replica.port());
    assert_says(&lockctl_at(&members, &["topology"]), &["it is a replica, and gives no locks; name its master"]);
    // Another process names other members.
    let other = MemberList::new(["a", "b"].map(String::from).into(), 2, Duration::from_secs(60));
    let store = RedisStore::new(&servers[2].url()).unwrap();
    store.remember(Some(&other), Duration::from_secs(60)).await.unwrap();
    let ended = lockctl_at(&url, &["topology"]);
    ended.assert_code(3);
    assert_says(&ended, &["it also serves a quorum of 2 of the members a, b", "name the same members everywhere"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lock_of_a_quorum_is_released_at_every_member() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let url = redlock(&servers);
    lockctl_at(&url, &["quorum", "init"]).assert_code(0);
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("k").await.unwrap();
    let owner = |server: &RedisServer| {
        let shown = lockctl_at(&server.url(), &["show", "k", "--json"]).json();
        shown["owner"].as_str().unwrap().to_owned()
    };
    let holder = owner(&servers[0]);
    let release = |owner: &str| lockctl_at(&url, &["release", "k", "--expect-owner", owner, "--reason", "a test"]);
    let ended = release(&"ab".repeat(16));
    ended.assert_code(1);
    guard.ensure_held().unwrap();
    let ended = release(&holder);
    ended.assert_code(0);
    assert_says(&ended, &["released k at 3 of 3 members"]);
    assert_eq!(guard.lost().await, LossReason::Revoked);
    let guard = locks.lock("k").await.unwrap();
    let holder = owner(&servers[0]);
    servers[1].kill();
    servers[2].kill();
    let ended = release(&holder);
    ended.assert_code(3);
    assert!(ended.stderr.contains("may still have it") && ended.stderr.contains("try again"), "{ended:?}");
    drop(guard);
}
