//! The effects on callers when another server takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{FencingGate, LockEvent, LockManager, LockObserver, LockOptions, LossReason, Notice, ReleaseOutcome};
use lock_testing::{Direction, EventLog, RedisSentinels, RedisServer, Reply, Stopwatch, limit};

use super::follow;
use crate::support::{MS, SECOND, all_told, bounded, eventually, exists, take};

/// Takes and releases one lock after another until told to stop. Returns when each was granted.
async fn work(locks: LockManager, key: &str, until: tokio::sync::watch::Receiver<bool>) -> Vec<tokio::time::Instant> {
    let mut granted = Vec::new();
    while !*until.borrow() {
        let guard = take(&locks, key).await;
        granted.push(tokio::time::Instant::now());
        guard.release().await.unwrap();
    }
    granted
}

#[tokio::test]
#[limit]
async fn a_planned_failover_is_no_error_and_keeps_what_is_held() {
    let servers = RedisSentinels::start();
    let locks = follow(&servers).await;
    let (events, failovers) = (EventLog::default(), Failovers::default());
    locks.observe(events.clone());
    locks.observe(failovers.clone());
    let held = take(&locks, "held").await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let workers: Vec<_> =
        (0..4).map(|worker| tokio::spawn(work(locks.clone(), ["a", "b", "c", "d"][worker], stopped.clone()))).collect();
    tokio::time::sleep(100 * MS).await;
    let before = held.token();
    let master = servers.fail_over();
    let promoted = Stopwatch::start();
    // Until then the old master, which nobody has demoted yet, may still be asked.
    eventually("this process has heard of it", || failovers.count() > 0).await;
    let guard = take(&locks, "after").await;
    bounded("first grant after a planned failover is known to all sentinels", promoted.elapsed(), 250 * MS);
    assert!(exists(&servers.servers()[master], "after"), "it is held on the new master");
    assert!(guard.token() > before, "tokens rise across the failover");
    guard.release().await.unwrap();
    stop.send(true).unwrap();
    for worker in workers {
        assert!(!worker.await.unwrap().is_empty());
    }
    held.ensure_held().unwrap();
    assert!(exists(&servers.servers()[master], "held"), "it was replicated");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    all_told(&events).await;
    assert_eq!((events.count("Lost"), events.count("Failed")), (0, 0));
}

/// Scenario 1 of the design: how long it takes from the promotion to the first grant.
async fn after_the_end_of_a_master(what: &str, end: impl FnOnce(&mut RedisSentinels)) -> Duration {
    let mut servers = RedisSentinels::start();
    let locks = follow(&servers).await;
    take(&locks, "k").await.release().await.unwrap();
    servers.notice_within(500);
    end(&mut servers);
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move {
            let guard = take(&locks, "k").await;
            (guard, tokio::time::Instant::now())
        }
    });
    eventually("the replica is promoted", || (0..3).any(|sentinel| servers.master_of(sentinel) == 1)).await;
    let at = tokio::time::Instant::now();
    let (guard, granted) = waiting.await.unwrap();
    let gap = granted.saturating_duration_since(at);
    bounded(&format!("grant after the promotion, master {what}"), gap, 250 * MS);
    assert!(exists(&servers.servers()[1], "k"));
    guard.release().await.unwrap();
    gap
}

#[tokio::test]
#[limit]
async fn a_killed_master_is_left_for_the_promoted_one() {
    let gap = after_the_end_of_a_master("killed", |servers| servers.kill(0)).await;
    assert!(gap < 5 * SECOND, "{gap:?}");
}

#[tokio::test]
#[limit]
async fn a_frozen_master_is_left_for_the_promoted_one() {
    let gap = after_the_end_of_a_master("frozen", |servers| servers.servers()[0].pause()).await;
    assert!(gap < 5 * SECOND, "{gap:?}");
}

/// The sentinels know who was promoted before every other replica follows it, and before the old master is told.
#[tokio::test]
#[limit]
async fn a_promotion_is_followed_before_the_failover_is_over() {
    let mut servers = RedisSentinels::builder().with_replicas(2).start();
    // The replica that is not promoted refuses to follow the other, so the failover does not end.
    for replica in &servers.servers()[1..] {
        replica.command(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof", "+slaveof|no"]);
    }
    // The others would hear of it from the one that leads, and say so.
    servers.sentinels_mut()[1..].iter_mut().for_each(RedisServer::kill);
    let leader = |words: &[&str]| servers.sentinels()[0].command(&[&["SENTINEL"], words].concat());
    assert_eq!(leader(&["SET", "mymaster", "failover-timeout", "600000"]), Reply::Text("OK".to_owned()));
    let locks = follow(&servers).await;
    let failovers = Failovers::default();
    locks.observe(failovers.clone());
    take(&locks, "k").await.release().await.unwrap();
    assert_eq!(leader(&["FAILOVER", "mymaster"]), Reply::Text("OK".to_owned()));
    eventually("a replica is promoted", || servers.master_of(0) > 0).await;
    let promoted = Stopwatch::start();
    eventually("this process follows it", || failovers.count() > 0).await;
    // It asks by itself every 30 s.
    promoted.assert_within(10 * SECOND, "hearing of a promotion");
    assert!(format!("{:?}", leader(&["MASTER", "mymaster"])).contains("failover_in_progress"));
    let guard = take(&locks, "k").await;
    assert!(exists(&servers.servers()[servers.master_of(0)], "k") && !exists(&servers.servers()[0], "k"));
    guard.release().await.unwrap();
}

/// Users are not replicated: a server that takes over may not know ours.
#[tokio::test]
#[limit]
async fn a_promoted_master_without_our_user_is_named_and_used_once_it_has_it() {
    let servers = RedisSentinels::start();
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    servers.servers()[0].command(&user);
    let options = LockOptions::default().with_ttl(600 * SECOND).with_wait(SECOND);
    let url = servers.url().replace("redis+sentinel://", "redis+sentinel://app:pw@");
    let locks = LockManager::connect_with(&url, options).await.unwrap();
    let held = take(&locks, "held").await;
    eventually("it is replicated", || exists(&servers.servers()[1], "held")).await;
    assert_eq!(servers.fail_over(), 1);
    let node = format!("127.0.0.1:{}", servers.servers()[1].port());
    let refused = loop {
        match locks.lock("k").await {
            // The old master was not told yet.
            Ok(guard) => drop(guard),
            Err(error) if error.to_string().contains("user or password is wrong") => break error,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    assert!(refused.to_string().contains(&node), "{refused}");
    held.ensure_held().unwrap();
    servers.servers()[1].command(&user);
    let guard = locks.lock("k").with_wait(60 * SECOND).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
}

/// Scenario 4 of the design: what the master did last never reached the replica.
#[tokio::test]
#[limit]
async fn what_a_failover_lost_is_known_and_what_it_revived_is_freed_again() {
    let servers = RedisSentinels::builder().behind_a_proxy().start();
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(30 * SECOND);
    let locks = LockManager::connect_with(&servers.direct_url(), options).await.unwrap();
    let failovers = Failovers::default();
    locks.observe(failovers.clone());
    let resource = std::sync::Mutex::new(FencingGate::new());
    let kept = take(&locks, "kept").await;
    let freed = take(&locks, "freed").await;
    let [master, replica] = [0, 1].map(|at| &servers.servers()[at]);
    eventually("replicated", || exists(replica, "kept") && exists(replica, "freed")).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        servers.front().black_hole(direction);
    }
    let lost = take(&locks, "lost").await;
    assert_eq!(freed.release().await, Ok(ReleaseOutcome::Released));
    assert!(exists(master, "lost") && !exists(master, "freed"));
    assert!(!exists(replica, "lost") && exists(replica, "freed"), "nothing reaches the replica any more");
    let stale = lost.token();
    servers.notice_within(500);
    let promoted = async { eventually("promoted", || (0..3).any(|sentinel| servers.master_of(sentinel) == 1)).await };
    promoted.await;
    let known = Stopwatch::start();
    assert_eq!(lost.lost().await, LossReason::Failover);
    // The promotion is found within the bound of a grant, and the loss is known 100 ms later.
    bounded("loss known after the promotion", known.elapsed(), 350 * MS);
    known.assert_within(5 * SECOND, "knowing of a loss by a failover");
    assert!(lost.ensure_held().is_err());
    // The replica has its key, under an owner that has ended: freed again, long before its lease of 30 s.
    let again = take(&locks, "freed").await;
    known.assert_within(10 * SECOND, "freeing what was freed before");
    let next = take(&locks, "lost").await;
    let gate = |token| resource.lock().unwrap().admit(token).is_ok();
    assert!(gate(next.token()) && !gate(stale), "a stale write is refused");
    kept.ensure_held().unwrap();
    for guard in [kept, again, next] {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_eq!(failovers.count(), 1);
}

/// Counts the failovers that a manager reports.
#[derive(Clone, Default)]
struct Failovers(Arc<AtomicUsize>);

impl Failovers {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl LockObserver for Failovers {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Failover { .. } = notice {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}
