//! Locks that count only when replicas have them.

use lock_core::{Durability, LockErrorKind, LockManager, LockOptions, LossReason, RedisStore};
use lock_testing::{
    Direction, EventLog, FaultProxy, RedisSentinels, RedisServer, RedisServerBuilder, Reply, Stopwatch, limit,
};

use crate::support::{MS, SECOND, bounded, eventually, exists, figure, locked_keys, lost, take};

/// A master, and a replica that reaches it through a proxy.
struct Pair {
    replica: RedisServer,
    between: FaultProxy,
    master: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let master = RedisServer::builder().with("repl-diskless-sync-delay", "0").start();
        let between = FaultProxy::start(master.port());
        let replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", between.port())).start();
        let linked = || replica.command(&["INFO", "replication"]).text().contains("master_link_status:up");
        eventually("the replica follows", linked).await;
        Self { replica, between, master }
    }

    /// A manager whose locks count when the replica has them.
    async fn locks(&self, durability: &str) -> LockManager {
        let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(30 * SECOND);
        LockManager::connect_with(&format!("{}?{durability}", self.master.url()), options).await.unwrap()
    }

    fn cut(&self) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.between.black_hole(direction);
        }
    }
}

#[tokio::test]
#[limit]
async fn a_grant_counts_when_the_replica_has_it_and_not_before() {
    let pair = Pair::start().await;
    let (plain, locks) = (pair.locks("").await, pair.locks("acks=1").await);
    // No data reaches the replica, so a granted claim has not waited for it.
    pair.cut();
    let guard = take(&plain, "plain").await;
    assert!(!exists(&pair.replica, "plain"), "nobody waited for the replica");
    guard.release().await.unwrap();
    pair.between.resume();
    // A cable of this length shows who waits for the replica.
    pair.between.delay(Direction::ToClient, 50 * MS);
    let watch = Stopwatch::start();
    let many: Vec<_> = (0..64)
        .map(|number| {
            let (locks, key) = (locks.clone(), format!("k{number}"));
            tokio::spawn(async move { take(&locks, &key).await })
        })
        .collect();
    for (number, task) in many.into_iter().enumerate() {
        let guard = task.await.unwrap();
        assert!(exists(&pair.replica, &format!("k{number}")), "it was granted, so the replica has it");
        guard.release().await.unwrap();
    }
    figure("64 confirmed locks over a replica 50 ms away", watch.elapsed());
    // Over the connection that has confirmed others: what it wrote before says nothing of these.
    for key in ["second", "third"] {
        let guard = take(&locks, key).await;
        assert!(exists(&pair.replica, key), "it was granted, so the replica has it");
        guard.release().await.unwrap();
    }
    // A grant through the queue, from another process.
    let other = pair.locks("acks=1").await;
    let held = take(&locks, "passed").await;
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { take(&other, "passed").await }
    });
    eventually("somebody queues", || exists(&pair.master, "{passed}@queue")).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap();
    let holder = pair.replica.command(&["GET", "passed"]).text().to_owned();
    assert_eq!(holder, pair.master.command(&["GET", "passed"]).text(), "the replica knows the new holder");
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn an_error_says_how_many_confirmed_only_where_they_were_counted() {
    let alone = RedisServer::start();
    let locks = LockManager::connect(&format!("{}?acks=1", alone.url())).await.unwrap();
    // The caller of a short lease gives up before the server has counted; that of a long one does not.
    for (ttl, says) in [(3 * SECOND, " ms that a replica has the lock"), (30 * SECOND, "0 of 1 replicas of 127.0.0.1")]
    {
        let error = locks.lock("k").with_ttl(ttl).without_waiting().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        eventually("it is undone", || !exists(&alone, "k")).await;
    }
}

/// Scenario 3 of the design.
#[tokio::test]
#[limit]
async fn without_the_replica_there_are_no_locks_and_nothing_is_left() {
    let pair = Pair::start().await;
    let locks = pair.locks("acks=1").await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let held = locks.lock("held").with_ttl(3 * SECOND).await.unwrap();
    let plain = locks.lock("plain").with_ttl(3 * SECOND).with_durability(Durability::Master).await.unwrap();
    pair.cut();
    let watch = Stopwatch::start();
    let error = locks.lock("k").with_ttl(3 * SECOND).without_waiting().try_acquire().await.unwrap_err();
    // A command time-out.
    bounded("refusal without a replica, ttl 3 s", watch.elapsed(), 500 * MS);
    watch.assert_within(5 * SECOND, "a refusal");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains(" ms that a replica has the lock"), "{error}");
    assert!(error.to_string().contains("ask for fewer acks"), "{error}");
    eventually("it is undone", || !exists(&pair.master, "k")).await;
    // No renewal counts any more.
    assert_eq!(lost(&held).await, LossReason::Unreachable);
    watch.assert_within(10 * SECOND, "a loss by unconfirmed renewals");
    plain.ensure_held().unwrap();
    plain.release().await.unwrap();
    drop(held);
    pair.between.resume();
    take(&locks, "k").await.release().await.unwrap();
    for server in [&pair.master, &pair.replica] {
        eventually("nothing is left", || locked_keys(server).is_empty()).await;
    }
}

#[tokio::test]
#[limit]
async fn what_a_server_cannot_confirm_is_refused_and_given_back() {
    let pair = Pair::start().await;
    let locks = pair.locks("fsync=local").await;
    let error = locks.lock("k").await.unwrap_err();
    let says = if waits_for_disks(&pair.master) { "appendonly" } else { "7.2" };
    assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains(says), "{error}");
    assert!(locked_keys(&pair.master).is_empty());
    let error = pair.locks("").await.lock("k").with_durability(Durability::AllReplicas).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("redis+sentinel://"), "{error}");
    assert!(locked_keys(&pair.master).is_empty());
    for (url, says) in [
        ("redis://h?acks=all", "redis+sentinel://"),
        ("redis://h?acks=256", "acks=1"),
        ("redis://h?fsync=never", "fsync=local"),
        ("redis+sentinel://h/mymaster?acks=1&fsync=1", "keep fsync"),
        ("redis://h?acks=1&acks=2", "more than one acks"),
    ] {
        let error = RedisStore::new(url).unwrap_err();
        assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains(says), "{url}: {error}");
    }
    let error = LockManager::connect("memory://?acks=1").await.unwrap_err();
    assert!(error.to_string().contains("no replicas"), "{error}");
    let error = LockManager::in_memory().lock("k").with_durability(Durability::Acks(1)).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("remove"), "{error}");
}

fn waits_for_disks(server: &RedisServer) -> bool {
    let info = server.command(&["INFO", "server"]).text().to_owned();
    !["6.2.", "7.0."].iter().any(|old| info.contains(&format!("redis_version:{old}")))
}

/// Where the servers can tell (Redis 7.2). An older one refuses, which is checked there.
#[tokio::test]
#[limit]
async fn what_is_on_disk_survives_the_crash_of_a_server() {
    let on_disk = |server: RedisServerBuilder| server.with("appendonly", "yes").with("repl-diskless-sync-delay", "0");
    let mut master = on_disk(RedisServer::builder()).start();
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(20 * SECOND);
    let locks = LockManager::connect_with(&format!("{}?fsync=local", master.url()), options).await.unwrap();
    let taken = locks.lock("local").await;
    if !waits_for_disks(&master) {
        let error = taken.unwrap_err();
        assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("7.2"), "{error}");
        return;
    }
    let guard = taken.unwrap();
    master.kill();
    master.restart();
    assert!(exists(&master, "local"), "what was granted was on the disk");
    guard.release().await.unwrap();
    // The disk of a replica too, as soon as there is one.
    let wanted = Durability::Fsync { local: true, replicas: 1 };
    let error = locks.lock("both").with_durability(wanted).without_waiting().await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Unavailable && error.to_string().contains("their disks"), "{error}");
    let place = format!("127.0.0.1 {}", master.port());
    let mut replica = on_disk(RedisServer::builder()).with("replicaof", &place).start();
    let guard = locks.lock("both").with_durability(wanted).await.unwrap();
    replica.kill();
    replica.restart();
    assert!(exists(&replica, "both"), "and on that of the replica");
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn all_are_those_that_the_sentinels_know() {
    let servers = RedisSentinels::builder().with_replicas(2).start();
    let options = LockOptions::default().with_ttl(3 * SECOND).without_waiting();
    let locks = LockManager::connect_with(&format!("{}?acks=all", servers.url()), options).await.unwrap();
    let guard = take(&locks, "k").await;
    assert!((0..3).all(|at| exists(&servers.servers()[at], "k")), "every server has it");
    guard.release().await.unwrap();
    servers.servers()[2].pause();
    let error = locks.lock("k").await.unwrap_err();
    assert!(error.to_string().contains("that 2 replicas have the lock"), "{error}");
    take_with(&locks, Durability::Acks(1)).await;
    // One sentinel may be cut off together with us, while the others make that replica the master.
    let first = &servers.sentinels()[0];
    let set = first.command(&["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "500"]);
    assert_eq!(set, Reply::Text("OK".to_owned()));
    eventually("one sentinel takes it for down", || down(&servers) == 1).await;
    // Others each time: what was refused is undone in the background.
    for key in ["k1", "k2", "k3"] {
        let error = locks.lock(key).await.unwrap_err();
        assert!(error.to_string().contains("that 2 replicas have the lock"), "{error}");
    }
    // A replica that is down is not promoted, so it is not waited for.
    servers.notice_within(500);
    eventually("the sentinels take it for down", || down(&servers) == 3).await;
    let retried = locks.lock("k").with_wait(30 * SECOND).await.unwrap();
    retried.release().await.unwrap();
    servers.servers()[2].resume();
}

/// An unknown number of replicas is not zero: with zero replicas, one confirmation would be enough.
#[tokio::test]
#[limit]
async fn replicas_that_sentinels_may_not_name_are_not_none_since_redis_7() {
    let servers = RedisSentinels::builder().with_replicas(2).start();
    let options = LockOptions::default().with_ttl(3 * SECOND).without_waiting();
    let url = format!("{}?acks=all", servers.url());
    let connect = || LockManager::connect_with(&url, options.clone());
    let forbid = |sentinels: std::ops::Range<usize>, rule: &str| {
        for sentinel in &servers.sentinels()[sentinels] {
            assert_eq!(sentinel.command(&["ACL", "SETUSER", "default", rule]), Reply::Text("OK".to_owned()), "{rule}");
        }
    };
    for (command, rule) in [("REPLICAS", "sentinel|replicas"), ("SENTINELS", "sentinel|sentinels")] {
        // Two tell, which are most of them.
        forbid(0..1, &format!("-{rule}"));
        let guard = connect().await.unwrap().lock("most").with_wait(30 * SECOND).await.unwrap();
        guard.release().await.unwrap();
        forbid(1..3, &format!("-{rule}"));
        servers.servers()[2].pause();
        let locks = connect().await.unwrap();
        let error = locks.lock("k").await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&format!("SENTINEL {command}")), "{error}");
        assert!(error.to_string().contains("acks=1"), "{error}");
        eventually("it is undone", || !exists(&servers.servers()[0], "k")).await;
        take_with(&locks, Durability::Acks(1)).await;
        servers.servers()[2].resume();
        forbid(0..3, &format!("+{rule}"));
    }
}

/// The old master could take over again, so it counts: until Sentinel has made it a replica, nothing is granted.
#[tokio::test]
#[limit]
async fn after_a_failover_all_includes_the_server_that_was_replaced() {
    let servers = RedisSentinels::start();
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(50 * SECOND);
    let locks = LockManager::connect_with(&format!("{}?acks=all", servers.url()), options).await.unwrap();
    take(&locks, "k").await.release().await.unwrap();
    assert_eq!(servers.fail_over(), 1);
    let promoted = Stopwatch::start();
    let guard = take(&locks, "after").await;
    bounded("grant with acks=all after a planned failover", promoted.elapsed(), 20 * SECOND);
    assert!(servers.servers().iter().all(|server| exists(server, "after")), "both servers have it");
    guard.release().await.unwrap();
}

async fn take_with(locks: &LockManager, durability: Durability) {
    let guard = locks.lock("fewer").with_wait(30 * SECOND).with_durability(durability).await.unwrap();
    guard.release().await.unwrap();
}

/// How many sentinels take a replica for down.
fn down(servers: &RedisSentinels) -> usize {
    let replicas =
        |at: &usize| format!("{:?}", servers.sentinels()[*at].command(&["SENTINEL", "REPLICAS", "mymaster"]));
    (0..3).filter(|at| replicas(at).contains("s_down")).count()
}
