//! Locks that are lost, or nearly: the holder knows in time, and knows why.

use std::time::{Duration, Instant};

use lock_core::testing::{Direction, EventLog, FaultProxy, RedisServer};
use lock_core::{LockError, LockGuard, LockManager, LossReason, ReleaseOutcome};

use crate::support::{MS, SECOND, SLACK, eventually, exists, figure, locks, locks_at, pttl, take, warm};

/// A lease long enough that a loss within a third of it is clearly no expiry.
const TTL: Duration = Duration::from_millis(1_800);

async fn hold(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).with_ttl(TTL).await.unwrap()
}

/// Waits for the loss of a lock, and says how long that took.
async fn loss(guard: &LockGuard) -> (LossReason, Duration) {
    let start = Instant::now();
    let reason = tokio::time::timeout(10 * SECOND, guard.lost()).await.expect("the loss was never signalled");
    assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), Some(reason));
    assert_eq!(guard.remaining(), Duration::ZERO);
    (reason, start.elapsed())
}

#[tokio::test]
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
        let guard = hold(&locks, "k").await;
        server.command(command);
        let (reason, took) = loss(&guard).await;
        figure(&format!("loss by {what}, ttl {TTL:?}"), took);
        assert_eq!(reason, LossReason::Stolen, "{what}");
        assert!(took < TTL / 3 + SLACK, "{what}: {took:?}");
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
        server.command(&["DEL", "k", "other"]);
    }
    events.assert_complete();
}

#[tokio::test]
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
async fn a_stolen_lock_is_not_given_back_by_its_old_holder() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    server.command(&["SET", "k", "mine now", "PX", "60000"]);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    assert_eq!(server.command(&["GET", "k"]).text(), "mine now");
}

#[tokio::test]
async fn an_extend_that_fails_leaves_the_key_as_it_was() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    server.command(&["SET", "k", "mine now", "PX", "60000"]);
    let error = guard.extend(9 * SECOND).await.unwrap_err();
    assert_eq!(error.loss_reason(), Some(LossReason::Stolen), "{error}");
    assert_eq!(server.command(&["GET", "k"]).text(), "mine now");
    assert!(pttl(&server, "k") > 50_000);
    drop(guard);

    let proxy = FaultProxy::start(server.port());
    let remote = warm(&proxy.url()).await;
    let guard = hold(&remote, "l").await;
    proxy.black_hole(Direction::ToServer);
    let error = guard.extend(9 * SECOND).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    guard.ensure_held().unwrap();
    assert!((1..=1_800).contains(&pttl(&server, "l")), "{}", pttl(&server, "l"));
    proxy.resume();
    guard.extend(9 * SECOND).await.unwrap();
    assert!(guard.remaining() > 8 * SECOND && pttl(&server, "l") > 8_000);
}

/// Waits for a loss that comes by the clock, and checks that the server still had the key then.
async fn lost_before_the_server_frees_it(guard: &LockGuard, what: &str, pttl: impl Fn() -> i64) {
    let left = guard.remaining();
    let (reason, took) = loss(guard).await;
    figure(&format!("loss by {what}, {left:?} before its deadline"), took);
    assert_eq!(reason, LossReason::Unreachable, "{what}");
    assert!(took + MS >= left && took < left + SLACK, "{what}: {took:?} of {left:?}");
    assert_ne!(pttl(), -2, "{what}: the server had freed the key before its holder knew");
}

#[tokio::test]
async fn a_black_hole_is_a_loss_before_the_server_frees_the_key() {
    let server = RedisServer::start();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let proxy = FaultProxy::start(server.port());
        let locks = warm(&proxy.url()).await;
        let guard = hold(&locks, "k").await;
        proxy.black_hole(direction);
        lost_before_the_server_frees_it(&guard, &format!("black hole {direction:?}"), || pttl(&server, "k")).await;
        // The same manager recovers, on a new connection: what the old one carried comes late or never.
        proxy.kill_connections();
        proxy.resume();
        drop(guard);
        let start = Instant::now();
        let guard = take(&locks, "k").await;
        figure("granted again after the black hole", start.elapsed());
        guard.release().await.unwrap();
        eventually("the late undo frees the key", TTL, || !exists(&server, "k")).await;
    }
}

#[tokio::test]
async fn a_black_hole_is_left_by_a_new_connection_even_while_it_lasts() {
    let server = RedisServer::start();
    for ttl in [300 * MS, 1_200 * MS] {
        let proxy = FaultProxy::start(server.port());
        let locks = warm(&proxy.url()).await;
        // Only what is open now is swallowed: the next connection would work.
        proxy.strand_connections();
        let start = Instant::now();
        let guard = locks.lock("k").with_ttl(ttl).with_renew(lock_core::Renew::Off).await.unwrap();
        figure(&format!("granted past a dead connection, ttl {ttl:?}"), start.elapsed());
        assert!(start.elapsed() < 4 * SECOND, "{:?}", start.elapsed());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_stays_down_is_a_loss_by_the_local_deadline() {
    let mut server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    tokio::time::sleep(SECOND).await;
    guard.ensure_held().unwrap();
    let left = guard.remaining();
    server.kill();
    let (reason, took) = loss(&guard).await;
    figure(&format!("loss by a dead server, {left:?} before the deadline"), took);
    assert_eq!(reason, LossReason::Unreachable);
    assert!(took <= TTL + SLACK, "{took:?}");
    let started = Instant::now();
    let error = locks.lock("k").with_wait(300 * MS).await.unwrap_err();
    assert_eq!(error.kind(), lock_core::LockErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() < 300 * MS + SLACK);
    server.restart();
    take(&locks, "k").await.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_stalls_and_comes_back_in_time_costs_nothing() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    for _ in 0..2 {
        server.pause();
        tokio::time::sleep(900 * MS).await;
        server.resume();
        tokio::time::sleep(600 * MS).await;
        guard.ensure_held().unwrap();
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test]
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
async fn a_restart_with_data_keeps_the_lock_and_one_without_loses_it() {
    for (persists, expected) in [("yes", None), ("no", Some(LossReason::Stolen))] {
        let mut server = RedisServer::builder().with("appendonly", persists).with("appendfsync", "always").start();
        let locks = locks(&server);
        let guard = locks.lock("k").with_ttl(3 * SECOND).await.unwrap();
        server.restart();
        let restarted = Instant::now();
        let lost = tokio::time::timeout(2 * SECOND, guard.lost()).await.ok();
        assert_eq!(lost, expected, "appendonly {persists}");
        match lost {
            Some(_) => {
                figure("loss by a restart without data, ttl 3 s", restarted.elapsed());
                assert!(restarted.elapsed() < SECOND + SLACK, "a new connection is reason enough to ask at once");
            }
            None => assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released)),
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_save_costs_the_lock_at_its_deadline_and_not_before() {
    let server = RedisServer::builder().with("save", "3600 1").start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = hold(&locks, "k").await;
    // A server that lost its directory cannot save, whoever it runs as.
    std::fs::remove_dir_all(server.directory()).unwrap();
    server.command(&["BGSAVE"]);
    let refused = || matches!(server.command(&["SET", "x", "y"]), lock_core::testing::Reply::Error(text) if text.starts_with("MISCONF"));
    eventually("writes are refused", SECOND, refused).await;
    let error = locks.lock("other").without_waiting().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("MISCONF"), "{error}");
    guard.ensure_held().unwrap();
    lost_before_the_server_frees_it(&guard, "MISCONF", || pttl(&server, "k")).await;
    let failures = events.names().iter().filter(|name| **name == "RenewFailed").count();
    figure("renewals tried under MISCONF", failures);
    assert!(failures >= 3, "{failures}");
    drop(guard);

    // In time again: the lock is kept.
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let guard = hold(&locks, "l").await;
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    tokio::time::sleep(TTL * 2 / 3).await;
    guard.ensure_held().unwrap();
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    tokio::time::sleep(TTL).await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    eventually("every story ends", SECOND, || {
        events.names().iter().filter(|name| **name == "WaitStarted").count() == 3
    })
    .await;
    events.assert_complete();
}

fn blocked(runtime: &tokio::runtime::Runtime, workers: u32) {
    let server = RedisServer::start();
    runtime.block_on(async {
        let locks = locks(&server);
        let guard = hold(&locks, "k").await;
        let held_by = |locks: LockManager| async move { locks.holder("k").await.unwrap().unwrap().owner };
        let owner = held_by(locks.clone()).await;
        // Every worker of the runtime, and the thread that drives it.
        let threads: Vec<_> = (0..workers).map(|_| tokio::spawn(async { std::thread::sleep(2 * TTL) })).collect();
        std::thread::sleep(2 * TTL);
        guard.ensure_held().unwrap();
        for thread in threads {
            thread.await.unwrap();
        }
        guard.ensure_held().unwrap();
        assert_eq!(held_by(locks.clone()).await, owner);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    });
}

#[test]
fn a_lock_survives_a_blocked_current_thread_runtime() {
    blocked(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), 0);
}

#[test]
fn a_lock_survives_a_blocked_runtime_of_two_workers() {
    blocked(&tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(), 2);
}

#[tokio::test]
async fn killed_connections_lose_no_lock() {
    let server = RedisServer::start();
    let locks = locks_at(&server.url());
    let guard = hold(&locks, "k").await;
    for _ in 0..10 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        tokio::time::sleep(150 * MS).await;
        guard.ensure_held().unwrap();
    }
    tokio::time::sleep(TTL).await;
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn paused_writes_shorter_than_the_lease_lose_no_lock() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = hold(&locks, "k").await;
    for _ in 0..2 {
        server.command(&["CLIENT", "PAUSE", "900", "WRITE"]);
        let start = Instant::now();
        let other = locks.lock("other").await.unwrap();
        assert!(start.elapsed() >= 800 * MS, "the pause was not felt");
        other.release().await.unwrap();
        guard.ensure_held().unwrap();
        tokio::time::sleep(300 * MS).await;
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}
