//! Operators see holders in Java, and may take their locks away.

use std::time::Duration;

use lock_core::inspect::{EntryState, FleetReader, ScanOptions};
use lock_core::store::Freed;
use lock_core::{LockKey, LossReason};
use lock_metrics::{FleetInspector, builder};
use lock_testing::{RedisCluster, RedisServer, limit};

use crate::support::{JAVA, SECOND, began, eventually, exists, in_layout, java_takes, listeners, locks, scripts, time};

fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_walk_lists_holders_of_both_kinds_and_no_other_hash() {
    let server = RedisServer::start();
    let (locks, fleet) = (locks(&server.url()), FleetReader::new(&in_layout(&server.url())).unwrap());
    let _ours = locks.lock("fleet:ours").with_site("shop::charge").await.unwrap();
    java_takes(&server, "fleet:java", 60 * SECOND);
    server.command(&["HSET", "fleet:prices", "apple", "1"]);
    server.command(&["SET", "fleet:text", "x"]);
    let (mut scan, mut found) = (fleet.scan(ScanOptions::new().with_prefix("fleet:")), Vec::new());
    while let Some(batch) = scan.next().await.unwrap() {
        found.extend(batch);
    }
    found.sort_by(|one, other| one.key.as_str().cmp(other.key.as_str()));
    let told: Vec<_> = found.iter().map(|entry| (entry.key.as_str(), entry.state, entry.holder.site())).collect();
    assert_eq!(told, [("fleet:java", EntryState::Held, "Redisson"), ("fleet:ours", EntryState::Held, "shop::charge")]);
    assert_eq!(found[0].details, [("client", JAVA[..36].to_owned()), ("thread", "42".to_owned())]);
}

#[tokio::test]
#[limit]
async fn a_lock_of_a_java_holder_that_would_stay_for_ever_can_be_taken_back() {
    let server = RedisServer::start();
    let (locks, fleet) = (locks(&server.url()), FleetReader::new(&in_layout(&server.url())).unwrap());
    java_takes(&server, "k", 60 * SECOND);
    server.command(&["PERSIST", "k"]);
    let guard = locks.lock("other").await.unwrap();
    let entry = fleet.entry(&key("k")).await.unwrap().unwrap();
    assert!(entry.is_without_ttl());
    let value = entry.foreign_value.unwrap();
    let release = async |name: &str, value: &[u8]| {
        fleet.release_foreign(&key(name), value, "ana", "its host is gone").await.unwrap()
    };
    assert_eq!(release("k", JAVA.replace(":42", ":43").as_bytes()).await, Freed::NotHeld, "another thread");
    assert_eq!(release("k", &value).await, Freed::Released);
    assert_eq!(release("k", &value).await, Freed::NotHeld);
    assert!(!exists(&server, "k"));
    let entry = fleet.entry(guard.key()).await.unwrap().unwrap();
    assert_eq!(entry.foreign_value, None, "what this library writes has an owner");
    let freed = fleet.release(guard.key(), entry.holder.owner.unwrap(), "ana", "a test").await.unwrap();
    assert_eq!(freed, Freed::Released);
    assert_eq!(tokio::time::timeout(20 * SECOND, guard.lost()).await.unwrap(), LossReason::Revoked);
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn metrics_and_the_alert_on_long_waits_name_a_java_holder() {
    let server = RedisServer::start();
    let (locks, metrics) = (locks(&server.url()), builder().build().unwrap());
    locks.observe(metrics.observer());
    java_takes(&server, "order:1", 60 * SECOND);
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("order:1").with_label("orders").with_wait(20 * SECOND).await }
    });
    // A series that the alert LockWaitTooLong reads.
    let is_told = || {
        let text = metrics.render();
        text.lines().any(|line| line.contains("waiting_on") && line.contains(r#"holder_site="Redisson""#))
    };
    eventually("the wait for Redisson is exported", is_told).await;
    assert!(metrics.locks_json().contains("Redisson"), "{}", metrics.locks_json());
    let inspector = FleetInspector::new(&in_layout(&server.url())).unwrap().with_prefix("order:", "orders");
    inspector.with_pause(Duration::ZERO).inspect_once(&metrics).await.unwrap();
    let text = metrics.render();
    let held = text.lines().find(|line| line.contains("inspector_held{") && line.contains(r#"lock="orders""#));
    assert!(held.is_some_and(|line| line.ends_with(" 1")), "{held:?}");
    // So it is no orphan.
    assert!(text.lines().any(|line| line.contains(r#"inspector_commands{lock="orders""#) && line.ends_with(" 1")));
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_waiter_tells_since_when_it_sees_a_java_holder_and_a_new_hold_of_the_same_thread_begins_anew() {
    let server = RedisServer::start();
    let (locks, metrics) = (locks(&server.url()), builder().build().unwrap());
    locks.observe(metrics.observer());
    let before = time(&server);
    java_takes(&server, "k", 60 * SECOND);
    let waiting = tokio::spawn(async move { locks.lock("k").with_wait(60 * SECOND).await });
    let looks = async || {
        let asked = scripts(&server);
        eventually("it looks again", || scripts(&server) > asked + 2).await;
    };
    eventually("the start of the hold is told", || began(&metrics).is_some()).await;
    let first = began(&metrics).unwrap();
    assert!(before <= first && first <= time(&server), "{before} {first}");
    server.command(&["PEXPIRE", "k", "90000"]);
    looks().await;
    assert_eq!(began(&metrics), Some(first), "a renewal is no new hold");

    // It is free for no moment in which another could take it.
    let before = time(&server);
    let script = "redis.call('DEL', KEYS[1]) redis.call('HINCRBY', KEYS[1], ARGV[1], 1) \
                  redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('PUBLISH', KEYS[2], '0')";
    server.command(&["EVAL", script, "2", "k", "redisson_lock__channel:{k}", JAVA]);
    eventually("the new hold is told", || began(&metrics).is_some_and(|began| began >= before)).await;

    let before = time(&server);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("it listens again", || listeners(&server, "redisson_lock__channel:{k}", false) > 0).await;
    eventually("it counts from there", || began(&metrics).is_some_and(|began| began >= before)).await;
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_walk_through_a_cluster_finds_the_locks_of_every_master() {
    let cluster = RedisCluster::start(3);
    let fleet = FleetReader::new(&in_layout(&cluster.url())).unwrap();
    for master in 0..3 {
        let key = cluster.key_on(master, "fleet");
        java_takes(&cluster.masters()[master], &key, 60 * SECOND);
    }
    let (mut scan, mut found) = (fleet.scan(ScanOptions::new()), 0);
    while let Some(batch) = scan.next().await.unwrap() {
        found += batch.len();
    }
    assert_eq!(found, 3);
}
