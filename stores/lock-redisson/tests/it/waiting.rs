//! Waiters hear of releases on Redisson's channel.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, ReleaseOutcome};
use lock_testing::{RedisServer, Stopwatch, limit};
use tokio::task::JoinHandle;

use crate::support::{
    MS, PATIENCE, SECOND, eventually, exists, java_frees, java_takes, listeners, locks, pttl, scripts,
};

const CHANNEL: &str = "redisson_lock__channel:{k}";

/// Far less than the second after which a waiter asks by itself.
const SOON: Duration = Duration::from_millis(400);

/// Checks that waiters were woken. A stall of the machine may hide that in some rounds. A waiter that only polls is never so soon.
fn assert_woken(took: &[Duration]) {
    let soon = took.iter().filter(|took| **took < SOON).count();
    assert!(soon >= took.len() / 2, "waiters were not woken: {took:?}");
}

/// Begins to wait for a lock that is taken. Returns when the waiter has asked and will not ask again soon.
async fn waiter(server: &RedisServer, locks: &LockManager) -> JoinHandle<LockGuard> {
    let (locks, before) = (locks.clone(), scripts(server));
    let waiting = tokio::spawn(async move { locks.lock("k").await.unwrap() });
    eventually("it listens", || listeners(server, CHANNEL, false) > 0).await;
    let mut asked = before;
    // It asks once more when its channel is open, and then every second.
    loop {
        tokio::time::sleep(100 * MS).await;
        match scripts(server) {
            now if now == asked && now > before => return waiting,
            now => asked = now,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_release_of_redisson_wakes_a_waiter_long_before_it_asks_by_itself() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    let mut took = Vec::new();
    for _ in 0..6 {
        java_takes(&server, "k", 60 * SECOND);
        let waiting = waiter(&server, &locks).await;
        let watch = Stopwatch::start();
        java_frees(&server, "k");
        let guard = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        took.push(watch.elapsed());
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_woken(&took);
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_release_of_ours_wakes_a_waiter_of_another_process() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server.url()), locks(&server.url()));
    let mut took = Vec::new();
    for _ in 0..6 {
        let guard = one.lock("k").await.unwrap();
        let token = guard.token();
        let waiting = waiter(&server, &two).await;
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let guard = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        took.push(watch.elapsed());
        assert!(guard.token() > token);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_woken(&took);
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_text_on_the_channel_wakes_nobody() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    java_takes(&server, "k", 60 * SECOND);
    let waiting = waiter(&server, &locks).await;
    let mut quiet = 0;
    // In some of these moments it asks by itself.
    for _ in 0..10 {
        let before = scripts(&server);
        for text in ["hello", "2", "-1", ""] {
            assert_eq!(server.command(&["PUBLISH", CHANNEL, text]).int(), 1);
        }
        tokio::time::sleep(50 * MS).await;
        quiet += usize::from(scripts(&server) == before);
    }
    assert!(quiet > 3, "it asked at {} of 10 messages", 10 - quiet);
    java_frees(&server, "k");
    drop(waiting.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_waiter_takes_a_lock_whose_holder_died_when_its_lease_ends() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    // Nobody publishes that.
    java_takes(&server, "k", 1500 * MS);
    let watch = Stopwatch::start();
    let guard = locks.lock("k").await.unwrap();
    assert!(watch.elapsed() > SECOND, "its lease was not over");
    watch.assert_within(1500 * MS + SOON, "the end of a lease");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn waiters_poll_while_the_server_refuses_the_channel() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels", "&distributed-lock:*"]);
    let locks = locks(&server.url().replace("redis://", "redis://app:secret@"));
    java_takes(&server, "k", 60 * SECOND);
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").await.unwrap() }
    });
    let before = scripts(&server);
    eventually("it polls", || scripts(&server) > before + 5).await;
    assert_eq!(server.command(&["DEL", "k"]).int(), 1);
    let guard = waiting.await.unwrap();
    // Its own release cannot be published either, but it is free.
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_waiter_that_gives_up_leaves_nothing_behind() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    java_takes(&server, "k", 60 * SECOND);
    let waiting = waiter(&server, &locks).await;
    waiting.abort();
    let error = locks.lock("k").with_wait(200 * MS).await.unwrap_err();
    assert!(error.to_string().contains("Redisson (pid 42 on 8743c9c0"), "{error}");
    assert!(pttl(&server, "k") > 50_000);
    java_frees(&server, "k");
    drop(locks.lock("k").await.unwrap());
}
