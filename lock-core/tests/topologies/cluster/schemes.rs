//! URLs whose scheme is that of another kind of server than the one that answers.

use lock_core::{LockError, LockErrorKind, LockManager, Renew};
use lock_testing::{EventLog, RedisCluster, RedisSentinels, RedisServer, Reply, Stopwatch, limit};

use crate::cluster::failover::{synced, take_over};
use crate::support::{MS, SECOND, eventually, exists, locks_at, take};

/// Writes a URL that names these servers.
fn url(scheme: &str, servers: &[RedisServer], path: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("{scheme}://{}{path}", hosts.join(","))
}

#[tokio::test]
#[limit]
async fn the_scheme_of_another_kind_of_server_is_refused_when_connecting_with_the_one_to_write() {
    let sentinels = RedisSentinels::builder().with_replicas(0).start();
    let (cluster, single) = (RedisCluster::start(3), [RedisServer::start()]);
    let of_sentinels = sentinels.sentinels();
    for (url, says) in [
        (url("redis", &of_sentinels[..1], ""), "write redis+sentinel://"),
        (url("redis+cluster", of_sentinels, ""), "write redis+sentinel://"),
        (url("redlock", of_sentinels, ""), "write redis+sentinel://"),
        (url("redis+cluster", &single, ""), "write redis://"),
        (url("redis+sentinel", &single, "/mymaster"), "no sentinel"),
        (url("redis+sentinel", cluster.masters(), "/mymaster"), "no sentinel"),
        (url("redlock", cluster.masters(), ""), "use the cluster alone by redis+cluster://"),
    ] {
        let watch = Stopwatch::start();
        let error = LockManager::connect(&url).await.unwrap_err();
        watch.assert_within(5 * SECOND, "a refusal");
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

/// Checks that a call was refused for the scheme.
fn refused<T>(what: &str, answer: Result<T, LockError>) {
    let Err(error) = answer else { panic!("{what} succeeded") };
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{what}: {error}");
    assert!(error.to_string().contains("write redis+cluster:// in the URL"), "{what}: {error}");
}

#[tokio::test]
#[limit]
async fn a_call_that_one_node_sends_to_another_is_refused_at_once_with_the_scheme_to_write() {
    let cluster = RedisCluster::start(2);
    let [here, there] = [0, 1].map(|master| cluster.key_on(master, "lock:"));
    let locks = locks_at(&cluster.masters()[0].url());
    take(&locks, &here).await.release().await.unwrap();
    // Each has this long, and none waits.
    let wait = 60 * SECOND;
    let watch = Stopwatch::start();
    refused("acquire", locks.lock(&there).with_wait(wait).await);
    refused("try", locks.lock(&there).without_waiting().try_acquire().await);
    refused("read", locks.read(&there).with_wait(wait).await);
    refused("a permit", locks.semaphore(&there, 3).with_wait(wait).await);
    refused("all, of two nodes", locks.lock_all([&here, &there]).with_wait(wait).await);
    let beside = cluster.key_on(1, &format!("{{{there}}}"));
    refused("all, of one slot", locks.lock_all([&there, &beside]).with_wait(wait).await);
    refused("the holders", locks.holders(&there).await);
    refused("the last run", locks.last_run(&there).await);
    watch.assert_within(30 * SECOND, "eight refusals");
    eventually("nothing is left", || !exists(&cluster.masters()[0], &here)).await;
}

#[tokio::test]
#[limit]
async fn a_lease_whose_slot_leaves_the_one_node_is_not_renewed_and_says_why() {
    let cluster = RedisCluster::start(2);
    let name = cluster.key_on(0, "lock:");
    let locks = locks_at(&cluster.masters()[0].url());
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock(&name).with_ttl(600 * SECOND).with_renew(Renew::Every(100 * MS)).await.unwrap();
    cluster.move_slot(&name, 0, 1);
    eventually("a renewal fails", || events.count("RenewFailed") > 0).await;
    refused("extend", guard.extend(600 * SECOND).await);
    // It may still be ours.
    assert_eq!(guard.ensure_held(), Ok(()));
    let watch = Stopwatch::start();
    refused("release", guard.release().await);
    watch.assert_within(30 * SECOND, "a refusal");
}

#[tokio::test]
#[limit]
async fn one_node_that_serves_every_slot_is_a_server_like_any_other() {
    let cluster = RedisCluster::start(1);
    let locks = locks_at(&cluster.masters()[0].url());
    let all = locks.lock_all(["a", "b", "{a}c"]).await.unwrap();
    let other = locks_at(&cluster.masters()[0].url());
    let waiting = tokio::spawn(other.lock("a").acquire());
    eventually("it waits", || exists(&cluster.masters()[0], "{a}@queue")).await;
    drop(all);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Like an address that leads to the former master.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_replica_of_a_cluster_is_waited_for_because_it_may_become_the_master() {
    let cluster = RedisCluster::start(1);
    let replica = cluster.start_replica_of(0);
    let locks = LockManager::connect(&replica.url()).await.unwrap();
    let error = locks.lock("k").with_wait(2 * SECOND).await.unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
    assert!(error.to_string().contains("is a replica in a cluster"), "{error}");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").with_wait(60 * SECOND).await }
    });
    tokio::time::sleep(300 * MS).await;
    assert!(!waiting.is_finished(), "{waiting:?}");
    synced(&cluster.masters()[0], &replica).await;
    take_over(&replica);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(replica.command(&["EXISTS", "k"]), Reply::Int(1));
    guard.release().await.unwrap();
}
