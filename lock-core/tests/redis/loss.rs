//! Locks that are lost, or almost lost: the holder learns of the loss in time, and learns why.

use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, LossReason, ReleaseOutcome, Renew};
use lock_testing::{Direction, EventLog, FaultProxy, RedisServer, Stopwatch, limit};

use crate::support::{
    LONG, MS, SECOND, all_told, eventually, exists, expired, figure, locks, locks_at, pttl, renewals, take, warm,
    watched,
};

/// A lease whose end a test waits for, and that outlasts a stall of the machine.
const TTL: Duration = Duration::from_secs(6);

/// Takes a lock that is renewed often, and ends within [`TTL`] once nothing can renew it.
async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).with_ttl(TTL).with_renew(Renew::Every(500 * MS)).await.unwrap()
}

/// Waits for the loss of a lock, and returns why and when.
async fn loss(guard: &LockGuard) -> (LossReason, Stopwatch) {
    let watch = Stopwatch::start();
    let reason = tokio::time::timeout(LONG, guard.lost()).await.expect("the loss was never signalled");
    assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), Some(reason));
    assert_eq!(guard.remaining(), Duration::ZERO);
    (reason, watch)
}

#[tokio::test]
#[limit]
async fn a_foreign_change_is_known_within_a_third_of_the_ttl() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    for (what, command) in [
        ("foreign DEL", &["DEL", "k"][..]),
        ("FLUSHALL", &["FLUSHALL"]),
        ("foreign SET", &["SET", "k", "mine now"]),
        ("replaced by another type", &["EVAL", "redis.call('DEL', 'k') redis.call('HSET', 'k', 'a', '1')", "0"]),
        ("foreign PEXPIRE", &["PEXPIRE", "k", "1"]),
        ("renamed", &["RENAME", "k", "other"]),
    ] {
        let guard = locks.lock("k").await.unwrap();
        server.command(command);
        let (reason, watch) = loss(&guard).await;
        figure(&format!("loss by {what}, ttl 30 s"), watch.elapsed());
        assert_eq!(reason, LossReason::Stolen, "{what}");
        watch.assert_within(10 * SECOND, what);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
        server.command(&["DEL", "k", "other"]);
    }
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_loss_drops_the_body_and_the_next_token_is_greater() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut newest = 0;
    for _ in 0..3 {
        let mut seen = 0;
        let outcome: Result<(), LockError> = locks
            .lock("k")
            .run(async |guard| {
                seen = guard.token().get();
                server.command(&["FLUSHALL"]);
                std::future::pending().await
            })
            .await;
        assert_eq!(outcome.unwrap_err().loss_reason(), Some(LossReason::Stolen));
        assert!(seen > newest, "{seen} after {newest}: the flush took the fence along");
        newest = seen;
    }
}

#[tokio::test]
#[limit]
async fn a_stolen_lock_is_not_given_back_by_its_old_holder() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = take(&locks, "k").await;
    server.command(&["SET", "k", "mine now", "PX", "600000"]);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    assert_eq!(server.command(&["GET", "k"]).text(), "mine now");
}

#[tokio::test]
#[limit]
async fn an_extend_that_fails_leaves_the_key_as_it_was() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = take(&locks, "k").await;
    server.command(&["SET", "k", "mine now", "PX", "600000"]);
    let error = guard.extend(9 * SECOND).await.unwrap_err();
    assert_eq!(error.loss_reason(), Some(LossReason::Stolen), "{error}");
    assert_eq!(server.command(&["GET", "k"]).text(), "mine now");
    assert!(pttl(&server, "k") > 500_000);
    drop(guard);

    let proxy = FaultProxy::start(server.port());
    let remote = warm(&proxy.url()).await;
    let guard = take(&remote, "l").await;
    proxy.black_hole(Direction::ToServer);
    let error = guard.extend(LONG).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    guard.ensure_held().unwrap();
    assert!((1..=30_000).contains(&pttl(&server, "l")), "{}", pttl(&server, "l"));
    proxy.resume();
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2 && pttl(&server, "l") > 300_000);
}

/// Waits for a loss that comes by the clock, and checks that the holder's deadline lies before the
/// moment at which the server frees the key.
async fn lost_before_the_server_frees_it(guard: &LockGuard, what: &str, pttl: impl Fn() -> i64) {
    // The time left is read first here and then on the server, so one look that finds no more here than
    // there is proof; an interrupted look proves nothing.
    let earlier = || {
        let left = guard.remaining();
        !left.is_zero() && Duration::from_millis(u64::try_from(pttl()).unwrap_or(0)) >= left
    };
    eventually(&format!("{what}: the holder's deadline is the earlier one"), earlier).await;
    let left = guard.remaining();
    let (reason, watch) = loss(guard).await;
    figure(&format!("loss by {what}, {left:?} before its deadline"), watch.elapsed());
    assert_eq!(reason, LossReason::Unreachable, "{what}");
    assert!(watch.elapsed() + MS >= left, "{what}: lost before its time");
    watch.assert_within(left, what);
}

#[tokio::test]
#[limit]
async fn a_black_hole_is_a_loss_before_the_server_frees_the_key() {
    let server = RedisServer::start();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let proxy = FaultProxy::start(server.port());
        let locks = warm(&proxy.url()).await;
        let guard = hold(&locks, "k").await;
        proxy.black_hole(direction);
        lost_before_the_server_frees_it(&guard, &format!("black hole {direction:?}"), || pttl(&server, "k")).await;
        // The same manager recovers, on a new connection: the commands on the old one arrive late or
        // never.
        proxy.kill_connections();
        proxy.resume();
        drop(guard);
        let watch = Stopwatch::start();
        let guard = take(&locks, "k").await;
        figure("granted again after the black hole", watch.elapsed());
        guard.release().await.unwrap();
        eventually("the late undo frees the key", || !exists(&server, "k")).await;
    }
}

#[tokio::test]
#[limit]
async fn a_black_hole_is_left_by_a_new_connection_even_while_it_lasts() {
    let server = RedisServer::start();
    for ttl in [3 * SECOND, 12 * SECOND] {
        let proxy = FaultProxy::start(server.port());
        let locks = warm(&proxy.url()).await;
        // Only the current connections go silent: the next connection would work.
        proxy.strand_connections();
        let watch = Stopwatch::start();
        let guard = locks.lock("k").with_ttl(ttl).with_renew(Renew::Off).await.unwrap();
        figure(&format!("granted past a dead connection, ttl {ttl:?}"), watch.elapsed());
        watch.assert_within(4 * SECOND, "a grant past a dead connection");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn a_server_that_stays_down_is_a_loss_by_the_local_deadline() {
    let mut server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    guard.ensure_held().unwrap();
    server.kill();
    let (reason, watch) = loss(&guard).await;
    figure(&format!("loss by a dead server, ttl {TTL:?}"), watch.elapsed());
    assert_eq!(reason, LossReason::Unreachable);
    watch.assert_within(TTL, "the loss of a server");
    let watch = Stopwatch::start();
    let error = locks.lock("k").with_wait(300 * MS).await.unwrap_err();
    assert_eq!(error.kind(), lock_core::LockErrorKind::Unavailable, "{error}");
    watch.assert_within(300 * MS, "giving up on a server that is down");
    server.restart();
    take(&locks, "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_server_that_stalls_and_comes_back_in_time_costs_nothing() {
    let server = RedisServer::start();
    let (locks, events) = (locks(&server), EventLog::default());
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    for _ in 0..2 {
        server.pause();
        tokio::time::sleep(SECOND).await;
        server.resume();
        renewals(&events, 2).await;
        guard.ensure_held().unwrap();
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn a_stall_longer_than_the_lease_is_a_loss_while_the_server_still_stalls() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    server.pause();
    let (reason, _) = loss(&guard).await;
    assert_eq!(reason, LossReason::Unreachable);
    server.resume();
    drop(guard);
    take(&locks, "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_restart_with_data_keeps_the_lock_and_one_without_loses_it() {
    for (persists, expected) in [("yes", None), ("no", Some(LossReason::Failover))] {
        let mut server = RedisServer::builder().with("appendonly", persists).with("appendfsync", "always").start();
        let locks = locks(&server);
        let guard = locks.lock("k").with_ttl(LONG).await.unwrap();
        server.restart();
        let restarted = Stopwatch::start();
        let lost = tokio::time::timeout(if expected.is_some() { LONG } else { 3 * SECOND }, guard.lost()).await.ok();
        assert_eq!(lost, expected, "appendonly {persists}");
        match lost {
            Some(_) => {
                figure("loss by a restart without data, ttl 600 s", restarted.elapsed());
                // A new connection is reason enough to ask at once.
                restarted.assert_within(SECOND, "noticing a restart");
            }
            None => assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released)),
        }
    }
}

#[tokio::test]
#[limit]
async fn a_server_that_cannot_save_costs_the_lock_at_its_deadline_and_not_before() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = hold(&locks, "k").await;
    // A server that lost its directory cannot save, under any user.
    std::fs::remove_dir_all(server.directory()).unwrap();
    server.command(&["BGSAVE"]);
    let refused = || matches!(server.command(&["SET", "x", "y"]), lock_testing::Reply::Error(text) if text.starts_with("MISCONF"));
    eventually("writes are refused", refused).await;
    let error = locks.lock("other").without_waiting().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("MISCONF"), "{error}");
    guard.ensure_held().unwrap();
    lost_before_the_server_frees_it(&guard, "MISCONF", || pttl(&server, "k")).await;
    let failures = events.count("RenewFailed");
    figure("renewals tried under MISCONF", failures);
    assert!(failures >= 3, "{failures}");
    drop(guard);

    // Writes work again in time, so the lock is kept.
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let guard = watched(&locks, "l").await.unwrap();
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    let failed = events.count("RenewFailed");
    eventually("renewals fail again", || events.count("RenewFailed") > failed).await;
    guard.ensure_held().unwrap();
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    renewals(&events, 2).await;
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    all_told(&events).await;
    assert_eq!(events.count("WaitStarted"), 3);
}

/// Blocks every thread of the application until the watchdog has shown several times that it needs
/// none of them.
fn blocked(runtime: &tokio::runtime::Runtime, workers: u32) {
    let server = RedisServer::start();
    let events = EventLog::default();
    runtime.block_on(async {
        let locks = locks(&server);
        locks.observe(events.clone());
        let guard = watched(&locks, "k").await.unwrap();
        let held_by = |locks: LockManager| async move { locks.holder("k").await.unwrap().unwrap().owner };
        let owner = held_by(locks.clone()).await;
        let block = |events: EventLog| {
            let watch = Stopwatch::start();
            while events.count("Renewed") < 10 {
                assert!(watch.elapsed() < LONG, "a blocked runtime stops the watchdog");
                std::thread::sleep(10 * MS);
            }
        };
        // Every worker of the runtime, and the thread that drives it.
        let others = events.clone();
        let threads: Vec<_> =
            (0..workers).map(|_| others.clone()).map(|log| tokio::spawn(async move { block(log) })).collect();
        block(events.clone());
        guard.ensure_held().unwrap();
        for thread in threads {
            thread.await.unwrap();
        }
        assert_eq!(held_by(locks.clone()).await, owner);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    });
}

#[test]
#[limit]
fn a_lock_survives_a_blocked_current_thread_runtime() {
    blocked(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), 0);
}

#[test]
#[limit]
fn a_lock_survives_a_blocked_runtime_of_two_workers() {
    blocked(&tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(), 2);
}

#[tokio::test]
#[limit]
async fn a_lock_outlives_its_lease_by_far() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = locks.lock("k").with_ttl(4 * SECOND).await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    guard.ensure_held().unwrap();
    assert_eq!(expired(&server), 0);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
#[limit]
async fn killed_connections_lose_no_lock() {
    let server = RedisServer::start();
    let (locks, events) = (locks_at(&server.url()), EventLog::default());
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    for _ in 0..10 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        renewals(&events, 1).await;
        guard.ensure_held().unwrap();
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
#[limit]
async fn paused_writes_shorter_than_the_lease_lose_no_lock() {
    let server = RedisServer::start();
    let (locks, events) = (locks(&server), EventLog::default());
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    for _ in 0..2 {
        let watch = Stopwatch::start();
        server.command(&["CLIENT", "PAUSE", "900", "WRITE"]);
        let other = locks.lock("other").await.unwrap();
        assert!(watch.elapsed() >= 800 * MS, "the pause was not felt");
        other.release().await.unwrap();
        renewals(&events, 2).await;
        guard.ensure_held().unwrap();
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}
