//! The rows of `docs/migrating.md`: what a call of another library does, and that ours does the same.

mod more_rows;
mod other;

use std::time::Duration;

use lock_core::{LockErrorKind, LockManager, LossReason, ReleaseOutcome, Renew, Wait};
use lock_testing::{RedisServer, limit};

use crate::migrating::other::{node_redlock, redis_py};
use crate::support::{LONG, MS, SECOND, eventually, exists, locks, take};

/// The call that the page names for a lock that is not renewed.
fn as_theirs(locks: &LockManager, key: &str, ttl: Duration) -> lock_core::LockRequest {
    locks.lock(key).with_ttl(ttl).with_renew(Renew::Off)
}

/// How often a command was called.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
    let line = stats.split("\r\n").find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

fn ttl_left(server: &RedisServer, key: &str) -> Duration {
    Duration::from_millis(server.command(&["PTTL", key]).int().try_into().unwrap_or(0))
}

/// A lock of ours as the rows write it ends with its ttl, and its holder is told.
async fn ours_ends_with_its_ttl(locks: &LockManager) {
    let guard = as_theirs(locks, "ours", 300 * MS).with_wait(Wait::Forever).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)));
}

#[tokio::test]
#[limit]
async fn redis_py_waits_for_ever_unless_told_otherwise_and_renews_nothing() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut python = redis_py(&server);
    let guard = take(&locks, "key").await;
    assert_eq!(python.run(r#"redis.lock("key", blocking=False).acquire()"#), "False");
    assert!(locks.lock("key").try_acquire().await.unwrap().is_none());
    assert_eq!(python.run(r#"redis.lock("key", blocking_timeout=0.3).acquire()"#), "False");
    let error = locks.lock("key").with_wait(300 * MS).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert_eq!(python.run(r#"redis.lock("key").locked()"#), "True");
    assert!(locks.holder("key").await.unwrap().is_some());

    python.run(r#"lock = redis.lock("key", timeout=100)"#);
    let before = calls(&server, "set");
    python.send("lock.acquire()");
    // More than our default wait of 5 s.
    eventually("it polls on", || calls(&server, "set") > before + 60).await;
    guard.release().await.unwrap();
    assert_eq!(python.answer(), "True");
    // Ours sets what is left, theirs adds.
    assert_eq!(python.run("lock.extend(100)"), "True");
    assert!(ttl_left(&server, "key") > 100 * SECOND);
    assert_eq!(python.run("lock.reacquire()"), "True");
    assert!(ttl_left(&server, "key") <= 100 * SECOND);
    assert_eq!(python.run("lock.release()"), "None");
    let guard = as_theirs(&locks, "key", 100 * SECOND).with_wait(Wait::Forever).await.unwrap();
    guard.extend(100 * SECOND).await.unwrap();
    assert!(ttl_left(&server, "key") <= 100 * SECOND);

    python.run(r#"lock = redis.lock("short", timeout=0.3)"#);
    assert_eq!(python.run("lock.acquire()"), "True");
    eventually("it is not renewed", || !exists(&server, "short")).await;
    assert_eq!(python.run("lock.release()"), "LockNotOwnedError");
    ours_ends_with_its_ttl(&locks).await;
}

#[tokio::test]
#[limit]
async fn rslock_tries_three_times_or_waits_for_ever_and_only_using_renews() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let rl = rslock::LockManager::new(vec![format!("redis://127.0.0.1:{}/", server.port())]);
    let guard = take(&locks, "key").await;
    let before = calls(&server, "set");
    let busy = rl.lock("key", LONG).await;
    assert!(matches!(busy, Err(rslock::LockError::Unavailable)), "{busy:?}");
    assert_eq!(calls(&server, "set") - before, 3);
    let error = as_theirs(&locks, "key", LONG).with_wait(400 * MS).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);

    // More than three times three.
    let before = calls(&server, "set");
    let acquired = tokio::spawn({
        let rl = rl.clone();
        async move { rl.acquire("key", LONG).await.unwrap() }
    });
    let using = tokio::spawn({
        let rl = rl.clone();
        async move { rl.using(b"key", LONG, async || ()).await.unwrap() }
    });
    eventually("both poll on", || calls(&server, "set") > before + 24).await;
    assert!(!acquired.is_finished() && !using.is_finished());
    guard.release().await.unwrap();
    // Dropped, it stays locked: ours does not.
    let theirs = acquired.await.unwrap();
    drop(theirs);
    assert_eq!(server.command(&["DEL", "key"]).int(), 1);
    using.await.unwrap();
    drop(take(&locks, "key").await);
    eventually("a dropped guard is released", || !exists(&server, "key")).await;

    let _theirs = rl.acquire("short", 300 * MS).await.unwrap();
    eventually("it is not renewed", || !exists(&server, "short")).await;
    ours_ends_with_its_ttl(&locks).await;

    // It renews half a second before the end: a stall of that length may lose it.
    let before = calls(&server, "evalsha");
    let renewed = async || {
        let work = async || eventually("it is renewed twice", || calls(&server, "evalsha") > before + 1).await;
        rl.using(b"used", SECOND, work).await
    };
    while renewed().await.is_err() {}
}

#[tokio::test]
#[limit]
async fn node_redlock_tries_eleven_times_renews_nothing_and_has_no_using() {
    let server = RedisServer::start();
    let flags = || rustix::fs::fcntl_getfl(std::io::stderr()).unwrap();
    let before = flags();
    let Some(mut node) = node_redlock(&server) else { return };
    let locks = locks(&server);
    assert_eq!(node.run("typeof redlock.using"), "undefined", "a later version: its row has to be read again");
    let guard = take(&locks, "key").await;
    assert_eq!(node.run(r#"redlock.lock("key", 60000).catch(error => error.attempts)"#), "11");
    let error = as_theirs(&locks, "key", LONG).with_wait(2 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);

    // All or none.
    assert_eq!(node.run(r#"redlock.lock(["other", "key"], 60000)"#), "LockError");
    assert!(!exists(&server, "other"));
    guard.release().await.unwrap();
    assert_eq!(node.run(r#"redlock.lock(["other", "key"], 60000).then(taken => { lock = taken })"#), "undefined");
    assert!(exists(&server, "other") && locks.lock("key").try_acquire().await.unwrap().is_none());
    assert_eq!(node.run("lock.unlock()"), "undefined");
    let both = locks.lock_all(["other", "key"]).await.unwrap();
    both.release().await.unwrap();

    assert_eq!(node.run(r#"redlock.lock("short", 300).then(taken => { lock = taken })"#), "undefined");
    eventually("it is not renewed", || !exists(&server, "short")).await;
    assert_eq!(node.run("lock.unlock()"), "LockError");
    ours_ends_with_its_ttl(&locks).await;
    assert_eq!(flags(), before, "else later output of this program is lost");
}
