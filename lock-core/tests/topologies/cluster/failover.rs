//! Masters that die, or hang, and the replicas that replace them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, LockEvent, LockManager, LockObserver, LossReason, Notice, RedisStore, ReleaseOutcome};
use lock_testing::{EventLog, RedisCluster, RedisServer, Reply, Stopwatch, limit};

use crate::support::{MS, SECOND, Scratch, Worker, bounded, eventually, exists, locked_keys, locks_at, take};

/// Makes a replica the master, without asking anybody.
pub(super) fn take_over(replica: &RedisServer) {
    assert_eq!(replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Reply::Text("OK".to_owned()));
}

/// Waits until a replica has everything.
pub(super) async fn synced(master: &RedisServer, replica: &RedisServer) {
    assert_eq!(master.command(&["WAIT", "1", "10000"]), Reply::Int(1));
    let size = |server: &RedisServer| server.command(&["DBSIZE"]);
    eventually("the replica has it all", || size(replica) == size(master)).await;
}

/// How a master ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Frozen,
}

async fn a_failover_is_followed(end: End) {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let [held, free, other] = [cluster.key_on(0, "held:"), cluster.key_on(0, "free:"), cluster.key_on(1, "other:")];
    let locks = locks_at(&cluster.url());
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock(&held).with_ttl(30 * SECOND).await.unwrap();
    // The caller's own connection to that master is open too.
    take(&locks, &free).await.release().await.unwrap();
    synced(&cluster.masters()[0], &replica).await;
    match end {
        End::Killed => cluster.kill(0),
        End::Frozen => cluster.masters()[0].pause(),
    }
    let waiting = tokio::spawn({
        let (locks, free) = (locks.clone(), free.clone());
        async move {
            let guard = locks.lock(free).with_wait(60 * SECOND).await.unwrap();
            (guard, Stopwatch::start())
        }
    });
    // No call waits for the answer of another master.
    for _ in 0..20 {
        take(&locks, &other).await.release().await.unwrap();
    }
    tokio::time::sleep(SECOND).await;
    assert!(!waiting.is_finished());
    take_over(&replica);
    let promoted = Stopwatch::start();
    let (granted, _) = waiting.await.unwrap();
    bounded(&format!("grant after the promotion, master of a cluster {end:?}"), promoted.elapsed(), 250 * MS);
    promoted.assert_within(SECOND, "the new master is found");
    assert!(exists(&replica, &free));
    // Verified at the new master at once, long before its next renewal.
    eventually("the lease is renewed at the new master", || events.count("Renewed") >= 1).await;
    assert_eq!((guard.ensure_held(), events.count("Lost")), (Ok(()), 0));
    guard.release().await.unwrap();
    granted.release().await.unwrap();
    assert!(!exists(&replica, &held) && !exists(&replica, &free));
    if matches!(end, End::Frozen) {
        cluster.masters()[0].resume();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_master_that_dies_is_replaced() {
    a_failover_is_followed(End::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_master_that_hangs_is_replaced() {
    a_failover_is_followed(End::Frozen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_planned_failover_is_no_error() {
    let cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let name = cluster.key_on(0, "lock:");
    let locks = locks_at(&cluster.url());
    let events = EventLog::default();
    locks.observe(events.clone());
    let held = take(&locks, &cluster.key_on(0, "held:")).await;
    let over = Arc::new(AtomicBool::new(false));
    let working = tokio::spawn({
        let (locks, name, over) = (locks.clone(), name.clone(), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Relaxed) {
                locks.lock(&name).await.unwrap().release().await.unwrap();
            }
        }
    });
    // The voters must know it as a replica.
    let nodes = |master: &RedisServer| master.command(&["CLUSTER", "NODES"]).text().contains(" slave ");
    eventually("every master knows the replica", || cluster.masters().iter().all(nodes)).await;
    assert_eq!(replica.command(&["CLUSTER", "FAILOVER"]), Reply::Text("OK".to_owned()));
    let is_master = || replica.command(&["INFO", "replication"]).text().contains("role:master");
    eventually("the replica is the master", is_master).await;
    tokio::time::sleep(300 * MS).await;
    over.store(true, Ordering::Relaxed);
    working.await.unwrap();
    assert!(exists(&replica, held.key().as_str()));
    assert_eq!((held.ensure_held(), events.count("Failed"), events.count("Lost")), (Ok(()), 0, 0));
}

#[tokio::test]
#[limit]
async fn without_a_replica_its_own_keys_end_by_name_and_others_are_served() {
    let mut cluster = RedisCluster::start(3);
    for master in cluster.masters() {
        master.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let [gone, other] = [cluster.key_on(0, "gone:"), cluster.key_on(1, "other:")];
    let dead = format!("127.0.0.1:{}", cluster.masters()[0].port());
    let locks = locks_at(&cluster.url());
    take(&locks, &gone).await.release().await.unwrap();
    cluster.kill(0);
    let error = locks.lock(&gone).with_wait(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains(&dead) && error.to_string().contains(&gone), "{error}");
    take(&locks, &other).await.release().await.unwrap();
}

/// Scenario 4 of the design.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_grant_that_the_new_master_does_not_know_is_lost_by_the_failover() {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let [kept, lost] = ["kept:", "lost:"].map(|prefix| cluster.key_on(0, prefix));
    let locks = locks_at(&cluster.url());
    let failovers = Arc::new(AtomicUsize::new(0));
    locks.observe(Failovers(Arc::clone(&failovers)));
    let kept = take(&locks, &kept).await;
    synced(&cluster.masters()[0], &replica).await;
    cut_off(&replica).await;
    let lost = take(&locks, &lost).await;
    cluster.kill(0);
    take_over(&replica);
    let promoted = Stopwatch::start();
    assert_eq!(tokio::time::timeout(20 * SECOND, lost.lost()).await, Ok(LossReason::Failover));
    // The promotion is found within the bound of a grant, and the loss is known 100 ms later.
    bounded("loss known after the promotion, cluster", promoted.elapsed(), 350 * MS);
    let next = take(&locks, lost.key().as_str()).await;
    assert!(next.token() > lost.token(), "a stale write is refused");
    assert_eq!(lost.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Failover)));
    kept.ensure_held().unwrap();
    assert_eq!(failovers.load(Ordering::SeqCst), 1);
    kept.release().await.unwrap();
    next.release().await.unwrap();
}

/// Lets nothing reach a replica any more: it can no longer log in at its master.
async fn cut_off(replica: &RedisServer) {
    for words in [
        ["CONFIG", "SET", "masteruser", "nobody"],
        ["CONFIG", "SET", "masterauth", "x"],
        ["CLIENT", "KILL", "TYPE", "master"],
    ] {
        replica.command(&words);
    }
    let info = || replica.command(&["INFO", "replication"]).text().to_owned();
    eventually("nothing reaches the replica any more", || info().contains("master_link_status:down")).await;
}

/// The last releases never reached the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn what_a_failover_revived_is_freed_again() {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let locks = locks_at(&cluster.url());
    let mut guards = Vec::new();
    for prefix in ["a:", "b:", "c:"] {
        guards.push(locks.lock(cluster.key_on(0, prefix)).with_ttl(600 * SECOND).await.unwrap());
    }
    let elsewhere = locks.lock(cluster.key_on(1, "lock:")).with_ttl(600 * SECOND).await.unwrap();
    synced(&cluster.masters()[0], &replica).await;
    cut_off(&replica).await;
    let keys: Vec<String> = guards.iter().map(|guard| guard.key().as_str().to_owned()).collect();
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert!(keys.iter().all(|key| !exists(&cluster.masters()[0], key)));
    cluster.kill(0);
    take_over(&replica);
    let promoted = Stopwatch::start();
    // Their leases are much longer.
    eventually("all of them are free", || locked_keys(&replica).is_empty()).await;
    bounded("what was freed before a failover is free again, cluster", promoted.elapsed(), SECOND);
    elsewhere.ensure_held().unwrap();
    elsewhere.release().await.unwrap();
}

/// Counts the failovers that a manager reports.
struct Failovers(Arc<AtomicUsize>);

impl LockObserver for Failovers {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Failover { .. } = notice {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Users are not replicated: the new master may not know ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn credentials_that_are_missing_on_one_node_are_waited_for_and_name_it() {
    let cluster = RedisCluster::start(2);
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    cluster.masters()[0].command(&user);
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://app:pw@");
    let locks = LockManager::builder(RedisStore::new(&url).unwrap()).with_ttl(6 * SECOND).build().unwrap();
    let [known, unknown] = [cluster.key_on(0, "lock:"), cluster.key_on(1, "lock:")];
    take(&locks, &known).await.release().await.unwrap();
    let error = locks.lock(&unknown).with_wait(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let node = format!("127.0.0.1:{}", cluster.masters()[1].port());
    assert!(error.to_string().contains(&node) && error.to_string().contains("user or password"), "{error}");
    let waiting = tokio::spawn(async move { locks.lock(unknown).with_wait(30 * SECOND).await.map(drop) });
    tokio::time::sleep(100 * MS).await;
    cluster.masters()[1].command(&user);
    waiting.await.unwrap().unwrap();
}

/// The queue is data like any other: who waited at the old master waits at the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_queue_of_processes_is_served_by_the_new_master() {
    a_queue_of_processes_is_served("from the promotion on", |cluster, replica, _| {
        cluster.kill(0);
        take_over(replica);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_queue_of_processes_is_served_where_its_slot_has_moved_to() {
    a_queue_of_processes_is_served("after their slot was moved", |cluster, _, name| cluster.move_slot(name, 0, 1))
        .await;
}

/// Scenario 7 of the design: eight processes queue for one lock while another master begins to serve it.
async fn a_queue_of_processes_is_served(when: &str, change: impl FnOnce(&mut RedisCluster, &RedisServer, &str)) {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let name = cluster.key_on(0, "lock:");
    let scratch = Scratch::new();
    let history = scratch.history();
    let arguments = [("url", &*cluster.url()), ("ttl_ms", "60000"), ("history", history.to_str().unwrap())];
    let mut processes: Vec<Worker> = (0..8).map(|_| Worker::start("hold", &arguments)).collect();
    let queue = format!("{{{name}}}@queue");
    for (place, process) in (0..).zip(&mut processes) {
        assert_eq!(process.next().await, "ready");
        process.send(&format!("acquire {name}")).await;
        if place == 0 {
            assert!(process.next().await.starts_with("held "));
        } else {
            let master = &cluster.masters()[0];
            eventually("it waits", || master.command(&["ZCARD", &queue]) == Reply::Int(place)).await;
        }
    }
    synced(&cluster.masters()[0], &replica).await;
    change(&mut cluster, &replica, &name);
    let watch = Stopwatch::start();
    let mut serving = tokio::task::JoinSet::new();
    for (place, mut process) in processes.into_iter().enumerate() {
        serving.spawn(async move {
            // A claim that does not listen at the new master yet is passed over once, and keeps its place.
            if place > 0 {
                assert!(process.next().await.starts_with("held "), "{place}");
            }
            assert!(process.order("release").await.starts_with("Released"), "{place}");
            process.ended().await;
        });
    }
    while let Some(served) = serving.join_next().await {
        served.unwrap();
    }
    // Each asks again within a second, should its grant not reach it.
    bounded(&format!("eight processes, one after the other, {when}"), watch.elapsed(), 8 * SECOND);
    watch.assert_within(8 * SECOND, "nobody is forgotten");
    let verdict = scratch.verdict();
    assert_eq!((verdict.grants, &*verdict.violations), (8, &[][..]));
}
