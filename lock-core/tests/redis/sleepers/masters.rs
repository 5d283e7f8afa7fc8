//! Claims that sleep when another server becomes their master.

use lock_core::{LockGuard, LockManager};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Reply, Stopwatch, limit};
use tokio::task::JoinSet;

use super::{all_asleep, entries, stamps, wait_for_k};
use crate::support::{LONG, SECOND, eventually, locks_at};

const WAITERS: usize = 3;

/// The holder of `k`, and processes that sleep behind it.
async fn sleeping(url: &str, master: &RedisServer) -> (LockGuard, JoinSet<usize>) {
    let (guard, mut tasks) = (locks_at(url).lock("k").with_ttl(LONG).await.unwrap(), JoinSet::new());
    for name in 0..WAITERS {
        let locks: LockManager = locks_at(url);
        wait_for_k(&mut tasks, locks, name);
        eventually("it queues", || entries(master).len() == name + 1).await;
    }
    all_asleep(master, WAITERS).await;
    assert_eq!(master.command(&["WAIT", "1", "10000"]), Reply::Int(1));
    (guard, tasks)
}

/// All ask the new master at once, and are served there, in the order in which they came.
async fn are_served(guard: LockGuard, mut tasks: JoinSet<usize>, before: &[String], master: &RedisServer) {
    let promoted = Stopwatch::start();
    let asked = || {
        let now = stamps(master);
        now.len() == WAITERS && now.iter().all(|stamp| !before.contains(stamp))
    };
    eventually("all ask the new master", asked).await;
    promoted.assert_within(7 * SECOND, "the first word to a new master");
    let released = Stopwatch::start();
    guard.release().await.unwrap();
    let mut order = Vec::new();
    while let Some(name) = tasks.join_next().await {
        order.push(name.unwrap());
    }
    released.assert_within(3 * SECOND, "the turns of those who slept");
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    eventually("nothing stays", || master.command(&["EXISTS", "k", "{k}@queue", "{k}@waiters"]) == Reply::Int(0)).await;
}

async fn in_a_cluster(killed: bool) {
    let mut cluster = RedisCluster::start(3);
    let slot = cluster.masters()[0].command(&["CLUSTER", "KEYSLOT", "k"]).int();
    let at = usize::try_from(slot * 3 / 16384).unwrap();
    let replica = cluster.start_replica_of(at);
    let (guard, tasks) = sleeping(&cluster.url(), &cluster.masters()[at]).await;
    let before = stamps(&cluster.masters()[at]);
    if killed {
        cluster.kill(at);
    }
    assert_eq!(replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Reply::Text("OK".to_owned()));
    are_served(guard, tasks, &before, &replica).await;
}

#[tokio::test]
#[limit]
async fn a_replica_that_takes_over_from_a_dead_master_is_asked_at_once() {
    in_a_cluster(true).await;
}

#[tokio::test]
#[limit]
async fn a_replica_that_takes_over_from_a_living_master_is_asked_at_once() {
    in_a_cluster(false).await;
}

#[tokio::test]
#[limit]
async fn the_next_master_of_sentinels_is_asked_at_once() {
    let servers = RedisSentinels::start();
    let (guard, tasks) = sleeping(&servers.url(), &servers.servers()[0]).await;
    let before = stamps(&servers.servers()[0]);
    let master = servers.fail_over();
    are_served(guard, tasks, &before, &servers.servers()[master]).await;
}
