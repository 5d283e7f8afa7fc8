//! Other servers take over: after a failover, and when a slot of a cluster moves.

use lock_core::{LockGuard, LockManager, ReleaseOutcome};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, limit};
use tokio::task::JoinHandle;

use crate::support::{SECOND, eventually, exists, java_frees, java_takes, listeners, locks};

fn waiter(locks: &LockManager, key: &str) -> JoinHandle<LockGuard> {
    let waiting = locks.lock(key).with_wait(60 * SECOND).acquire();
    tokio::spawn(async move { waiting.await.unwrap() })
}

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn after_a_failover_holders_keep_their_locks_and_waiters_listen_at_the_new_master() {
    let servers = RedisSentinels::builder().with_replicas(1).start();
    let (locks, channel) = (locks(&servers.url()), "redisson_lock__channel:{java}");
    let old = servers.master().unwrap();
    let held = locks.lock("ours").await.unwrap();
    java_takes(&servers.servers()[old], "java", 60 * SECOND);
    let waiting = waiter(&locks, "java");
    eventually("it listens", || listeners(&servers.servers()[old], channel, false) > 0).await;
    let replica = &servers.servers()[1 - old];
    eventually("both are replicated", || exists(replica, "ours") && exists(replica, "java")).await;
    let master = &servers.servers()[servers.fail_over()];
    eventually("it listens at the new master", || listeners(master, channel, false) > 0).await;
    java_frees(master, "java");
    assert_eq!(waiting.await.unwrap().release().await, Ok(ReleaseOutcome::Released));
    held.extend(60 * SECOND).await.unwrap();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(master, "ours") && !exists(master, "java"));
}

/// Passes a lock from Java to ours and on, while its slot moves to the first master and back.
async fn through_a_move(cluster: &RedisCluster, parameter: &str, verb: &str) {
    // Two processes: within one, a waiter would stand behind the holder and ask no server.
    let [one, two] = [0, 1].map(|_| locks(&format!("{}{parameter}", cluster.url())));
    let (key, [to, from]) = (cluster.key_on(1, verb), [0, 1].map(|at| &cluster.masters()[at]));
    let (channel, is_sharded) = (format!("redisson_lock__channel:{{{key}}}"), verb == "SPUBLISH");
    let hears = |server: &RedisServer| listeners(server, &channel, is_sharded) > 0;
    java_takes(from, &key, 60 * SECOND);
    let waiting = waiter(&one, &key);
    eventually("it listens", || hears(from)).await;
    cluster.move_slot(&key, 1, 0);
    eventually("it listens where the slot is", || hears(to)).await;
    let script = "redis.call('DEL', KEYS[1]) return redis.call(ARGV[1], KEYS[2], '0')";
    to.command(&["EVAL", script, "2", &key, &channel, verb]);
    let guard = waiting.await.unwrap();
    cluster.move_slot(&key, 0, 1);
    guard.extend(60 * SECOND).await.unwrap();
    let waiting = waiter(&two, &key);
    eventually("another listens", || hears(from)).await;
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(waiting.await.unwrap().release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(from, &key));
}

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn a_slot_that_moves_takes_its_holders_and_waiters_along() {
    let cluster = RedisCluster::start(2);
    through_a_move(&cluster, "", "PUBLISH").await;
    through_a_move(&cluster, "?redisson_publish=sharded", "SPUBLISH").await;
}
