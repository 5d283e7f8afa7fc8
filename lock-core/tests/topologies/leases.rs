//! A lease outlives the process that took it, on each kind of servers.

use std::time::Duration;

use lock_core::inspect::FleetReader;
use lock_core::lease::of_site;
use lock_core::{LockErrorKind, LockKey, ReleaseOutcome};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Reply, limit};

use crate::support::{LONG, SECOND, eventually, locks_at};

/// Takes, renews, waits for and releases a lease by managers that know nothing of each other.
async fn serves(url: &str, key: &str) {
    let first = locks_at(url);
    let lease = first.lease(key).holder("ci-1").ttl(LONG).reason("release 42").acquire().await.unwrap();
    first.shutdown(SECOND).await;
    drop((first, lease.clone()));
    let second = locks_at(url);
    let refused = second.lock(key).without_waiting().await.unwrap_err();
    assert_eq!(of_site(refused.holder().unwrap().site()), Some(("ci-1", "release 42")), "{refused}");
    let again = second.lease(key).holder("ci-1").ttl(LONG).acquire().await.unwrap();
    assert!(again.token > lease.token);
    let mut found = second.lease(key).holder("ci-1").ttl(2 * LONG).find().await.unwrap().unwrap();
    assert_eq!(found.token, None, "the store tells a token to an acquire only");
    found.renew(&second).await.unwrap();
    let drawn = found.token;
    assert!(drawn > again.token, "{found:?}");
    found.renew(&second).await.unwrap();
    assert_eq!(found.token, drawn, "a token that is known stays");
    let third = locks_at(url);
    assert!(third.lease(key).holder("ci-2").find().await.unwrap().is_none());
    let waiting = tokio::spawn(third.lease(key).holder("ci-2").ttl(LONG).wait(Duration::from_secs(50)).acquire());
    let fleet = FleetReader::new(url).unwrap();
    let full = LockKey::new(key).unwrap();
    let mut late = second.lease(key).holder("ci-1").ttl(SECOND).find().await.unwrap().unwrap();
    late.renew(&second).await.unwrap();
    let left = fleet.entry(&full).await.unwrap().unwrap().holder.ttl_left.unwrap();
    assert!(
        left > LONG + LONG / 2 && left <= 2 * LONG,
        "a short renewal and its draw of a token change no lease: {left:?}"
    );
    loop {
        if fleet.waiters(&full).await.unwrap().len() == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(found.release(&second).await.unwrap(), ReleaseOutcome::Released);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token > drawn && next.token > late.token);
    let entry = fleet.entry(&full).await.unwrap().unwrap();
    assert!(entry.holder.ttl_left.unwrap() > LONG / 2, "a grant from the queue lasts the whole ttl: {entry:?}");
    assert_eq!(next.release(&second).await.unwrap(), ReleaseOutcome::Released);
    second.lock(key).await.unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn one_server_keeps_leases() {
    let server = RedisServer::start();
    serves(&server.url(), "deploy:prod").await;
    // No key of the lock is left.
    eventually("nothing is left", || match server.command(&["KEYS", "*deploy*"]) {
        Reply::List(keys) => keys.is_empty(),
        _ => false,
    })
    .await;
}

#[tokio::test]
#[limit(120)]
async fn sentinel_keeps_leases() {
    serves(&RedisSentinels::start().url(), "deploy:prod").await;
}

#[tokio::test]
#[limit(120)]
async fn a_cluster_keeps_leases() {
    let cluster = RedisCluster::start(3);
    for master in 0..3 {
        serves(&cluster.url(), &cluster.key_on(master, "deploy")).await;
    }
}

#[tokio::test]
#[limit]
async fn a_quorum_refuses_leases() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let locks =
        lock_core::LockManager::builder_for(&format!("redlock://{}", hosts.join(","))).unwrap().build().unwrap();
    let error = locks.lease("k").holder("ci-1").acquire().await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("quorum"), "{error}");
}

/// An older version writes and reads the same value: owner, instant, ttl, host, pid, site and the name of the lock.
#[tokio::test]
#[limit]
async fn an_older_reader_reads_a_lease_as_any_lock() {
    let server = RedisServer::start();
    let locks = locks_at(&server.url());
    let lease = locks.lease("k").holder("ci-1").ttl(LONG).reason("a|b\nc").acquire().await.unwrap();
    let Reply::Text(value) = server.command(&["GET", "k"]) else { panic!("no value") };
    let parts: Vec<&str> = value.split('|').collect();
    assert_eq!((parts.len(), parts[0].len(), parts[5]), (7, 32, "lease ci-1: a b c"), "{value}");
    assert!(parts[1].parse::<u64>().is_ok() && parts[2] == LONG.as_millis().to_string(), "{value}");
    // A client of the classic protocol is excluded, and a restarted server has forgotten the lease, as any lock.
    assert_eq!(server.command(&["SET", "k", "x", "NX"]), Reply::Nil);
    lease.release(&locks).await.unwrap();
}

/// A message about the grant that comes late does not free the lease.
#[tokio::test]
#[limit]
async fn a_late_grant_does_not_free_a_lease() {
    let server = RedisServer::start();
    // Only one process listens, so the message below reaches the process of the claim.
    let locks = locks_at(&server.url());
    server.command(&["SET", "k", "of another library", "PX", "1000"]);
    let request = locks.lease("k").holder("ci-1").ttl(LONG).wait(Duration::from_secs(50));
    let lease = request.acquire().await.unwrap();
    let (owner, inbox) = {
        let Reply::Text(value) = server.command(&["GET", "k"]) else { panic!("no value") };
        let channels = format!("{:?}", server.command(&["PUBSUB", "CHANNELS", "distributed-lock:inbox:*"]));
        (value[..32].to_owned(), channels)
    };
    assert!(lease.to_string().contains(&owner) && inbox.contains("inbox"), "{inbox}");
    for channel in inbox.split('"').filter(|part| part.starts_with("distributed-lock:inbox:")) {
        // The message of the grant, once more. A token is made of the draw `ms-seq`.
        let draw = lease.token.unwrap().get() / 128;
        let message = format!("{owner}|{}-{}|3000|1|k", draw / 8192, draw % 8192);
        server.command(&["PUBLISH", channel, &message]);
    }
    locks.lock("other").await.unwrap().release().await.unwrap();
    assert_eq!(lease.release(&locks).await.unwrap(), ReleaseOutcome::Released);
}
