//! Shutting down: at once, after the holders have finished, and what is reported.

use std::time::Duration;

use lock_core::testing::limit;
use lock_core::{LockErrorKind, LockManager, LossReason};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
#[limit]
async fn a_drain_waits_for_holders_and_refuses_everybody_else() {
    let locks = LockManager::for_tests();
    let guard = locks.lock("k").await.unwrap();
    let waiter = tokio::spawn(locks.lock("k").with_wait(60 * SECOND).into_future());
    tokio::time::sleep(SECOND).await;
    let stopping = tokio::spawn(locks.stopping());
    let draining = tokio::spawn({
        let locks = locks.manager();
        async move { locks.drain(10 * SECOND).await }
    });
    stopping.await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(locks.lock("other").await.unwrap_err().kind(), LockErrorKind::ShutDown);
    tokio::time::sleep(8 * SECOND).await;
    guard.ensure_held().unwrap();
    assert!(!draining.is_finished());
    let before = tokio::time::Instant::now();
    guard.release().await.unwrap();
    let report = draining.await.unwrap();
    assert!(before.elapsed() < SECOND / 10, "it ends with the last holder, after {:?}", before.elapsed());
    assert!(report.is_clean() && report.released == 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_drain_takes_away_what_is_not_given_back_in_time() {
    let locks = LockManager::for_tests();
    let guard = locks.lock("k").await.unwrap();
    let before = tokio::time::Instant::now();
    let report = locks.drain(10 * SECOND).await;
    assert!((9 * SECOND..=10 * SECOND).contains(&before.elapsed()), "{:?}", before.elapsed());
    assert!(report.is_clean() && report.released == 1, "{report:?}");
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    assert!(locks.all_free());
}

#[cfg(feature = "redis")]
#[tokio::test]
#[limit]
async fn one_lock_that_cannot_be_freed_does_not_hide_the_others() {
    use lock_core::testing::RedisServer;

    let server = RedisServer::start();
    let locks = crate::support::locks(&server);
    let mut guards = vec![crate::support::take(&locks, "forbidden").await];
    for number in 1..=5 {
        guards.push(crate::support::take(&locks, &format!("free-{number}")).await);
    }
    // Every key of the five locks has a number in its name.
    server.command(&["ACL", "SETUSER", "default", "resetkeys", "~*[0-9]*", "~distributed-lock:clock", "~lock:*"]);
    let report = locks.shutdown(3 * SECOND).await;
    assert_eq!(report.released, 5, "{report:?}");
    assert_eq!(report.unreleased.iter().map(lock_core::LockKey::as_str).collect::<Vec<_>>(), ["forbidden"]);
    assert!(!report.is_clean());
    drop(guards);
}
