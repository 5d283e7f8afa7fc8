//! The rows of `docs/migrating.md` about extending, giving up and giving back.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, LossReason, ReleaseOutcome, Wait};
use lock_testing::{RedisServer, limit};

use crate::migrating::other::{node_redlock, redis_py};
use crate::migrating::{as_theirs, calls, ttl_left};
use crate::support::{LONG, MS, SECOND, eventually, exists, locks, take};

fn rslock_at(port: u16) -> rslock::LockManager {
    rslock::LockManager::new(vec![format!("redis://127.0.0.1:{port}/")])
}

#[tokio::test]
#[limit]
async fn rslock_counts_tries_and_tells_neither_away_from_busy_nor_a_lock_that_was_lost() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut rl = rslock_at(server.port());

    // `set_retry`: so many tries.
    let guard = take(&locks, "key").await;
    rl.set_retry(5, 10 * MS);
    let before = calls(&server, "set");
    assert!(matches!(rl.lock("key", LONG).await, Err(rslock::LockError::Unavailable)));
    assert_eq!(calls(&server, "set") - before, 5);
    guard.release().await.unwrap();

    // `extend`: from now on, in up to as many tries.
    let theirs = rl.lock("key", 100 * SECOND).await.unwrap();
    rl.extend(&theirs, LONG).await.unwrap();
    assert!(ttl_left(&server, "key") > 100 * SECOND);
    server.command(&["DEL", "key"]);
    let before = calls(&server, "evalsha");
    assert!(rl.extend(&theirs, LONG).await.is_err());
    assert_eq!(calls(&server, "evalsha") - before, 10, "each try takes back what it may have done");
    // `unlock` reports nothing. Ours says what became of it.
    let () = rl.unlock(&theirs).await;
    let ours = take(&locks, "key").await;
    ours.extend(LONG).await.unwrap();
    server.command(&["DEL", "key"]);
    assert_eq!(ours.extend(LONG).await.unwrap_err().loss_reason(), Some(LossReason::Stolen));
    assert_eq!(ours.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));

    // `using` drops the routine when it cannot renew; so does `run`.
    let work = async || {
        server.command(&["DEL", "used"]);
        std::future::pending::<()>().await;
    };
    assert!(rl.using(b"used", SECOND, work).await.is_err());
    let lost = locks.lock("used").with_ttl(SECOND).with_wait(Wait::Forever).run(async |_| {
        server.command(&["DEL", "used"]);
        std::future::pending::<Result<(), LockError>>().await
    });
    assert_eq!(lost.await.unwrap_err().kind(), LockErrorKind::Lost);

    // A server that is away is `Unavailable` too. Port 1 does not have a listener.
    assert!(matches!(rslock_at(1).lock("key", LONG).await, Err(rslock::LockError::Unavailable)));
    let away = LockManager::builder_for("redis://127.0.0.1:1").unwrap().build().unwrap();
    let error = as_theirs(&away, "key", LONG).with_wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}

#[tokio::test]
#[limit]
async fn redis_py_sets_no_expiry_raises_in_with_and_has_a_token_for_each_thread() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut python = redis_py(&server);
    assert_eq!(python.run(r#"redis.lock("bare").acquire()"#), "True");
    assert_eq!(server.command(&["PTTL", "bare"]).int(), -1, "no expiry");
    drop(take(&locks, "ours").await);

    let guard = take(&locks, "key").await;
    assert_eq!(python.run(r#"with redis.lock("key", blocking_timeout=0.1): pass"#), "LockError");
    guard.release().await.unwrap();
    assert_eq!(python.run(r#"with redis.lock("key", timeout=100): pass"#), "None");
    assert!(!exists(&server, "key"));
    let ran = locks.lock("key").run(async |_| Ok::<_, LockError>("ran")).await;
    assert_eq!(ran.unwrap(), "ran");

    python.run(r#"lock = redis.lock("key", timeout=100)"#);
    assert_eq!(python.run("lock.acquire()"), "True");
    assert_eq!(python.run("lock.extend(50, replace_ttl=True)"), "True");
    assert!(ttl_left(&server, "key") <= 50 * SECOND);
    assert_eq!(python.run("lock.owned()"), "True");
    python.run(r#"pool = __import__("concurrent.futures").futures.ThreadPoolExecutor()"#);
    let of_another = python.run("type(pool.submit(lock.release).exception()).__name__");
    assert_eq!(of_another, "'AttributeError'", "another thread has no token");
    assert!(exists(&server, "key"));
    assert_eq!(python.run("lock.release()"), "None");
    // A guard moves.
    let guard = take(&locks, "key").await;
    assert_eq!(tokio::spawn(async move { guard.release().await }).await.unwrap(), Ok(ReleaseOutcome::Released));
}

#[tokio::test]
#[limit]
async fn node_redlock_waits_for_ever_if_told_extends_from_now_and_names_its_attempts() {
    let server = RedisServer::start();
    let Some(mut node) = node_redlock(&server) else { return };
    let locks = locks(&server);
    let guard = take(&locks, "key").await;
    assert_eq!(
        node.run(r#"redlock.acquire("key", 60000).catch(error => error.message)"#),
        r#"Exceeded 10 attempts to lock the resource "key"."#
    );
    node.run("redlock = new Redlock([client], { retryCount: -1, retryDelay: 10 })");
    let before = calls(&server, "eval") + calls(&server, "evalsha");
    node.send(r#"redlock.lock("key", 60000).then(taken => { lock = taken })"#);
    eventually("it asks on", || calls(&server, "eval") + calls(&server, "evalsha") > before + 30).await;
    guard.release().await.unwrap();
    assert_eq!(node.answer(), "undefined");
    assert_eq!(node.run("lock.extend(5000).then(taken => { lock = taken })"), "undefined");
    assert!(ttl_left(&server, "key") <= 5 * SECOND, "from now on");
    assert_eq!(node.run("lock.unlock()"), "undefined");

    let using = r#"require("bluebird").using(redlock.disposer("used", 60000, () => {}), async () => { inside = await client.exists("used") })"#;
    node.run(using);
    assert_eq!(node.run("inside"), "1");
    assert!(!exists(&server, "used"));
}
