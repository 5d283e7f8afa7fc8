//! Shutting down: at once, after the holders have finished, and what is reported.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, LossReason, MemoryStore, ShutdownReport};
use lock_testing::limit;
use tokio::task::JoinHandle;

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
    let late = locks.lock("other").await.unwrap_err();
    assert_eq!(late.kind(), LockErrorKind::ShutDown);
    assert!(late.to_string().contains("is stopping") && late.to_string().contains("serve_while_stopping()"), "{late}");
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
    let late = locks.lock("other").await.unwrap_err();
    assert!(late.to_string().contains("was shut down"), "{late}");
    assert!(locks.all_free());
}

fn drain(locks: &LockManager) -> JoinHandle<ShutdownReport> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.drain(10 * SECOND).await })
}

/// On the clock of the test.
fn serving_while_stopping() -> LockManager {
    LockManager::builder(MemoryStore::new()).drive_on_current_runtime().serve_while_stopping().build().unwrap()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_manager_that_serves_while_it_stops_grants_locks_until_the_time_is_up() {
    let locks = serving_while_stopping();
    let guard = locks.lock("k").await.unwrap();
    let waiter = tokio::spawn(locks.lock("k").with_wait(60 * SECOND).into_future());
    let late = tokio::spawn(locks.lock("k").with_wait(60 * SECOND).into_future());
    tokio::time::sleep(SECOND).await;
    let draining = drain(&locks);
    locks.stopping().await;
    tokio::time::sleep(SECOND).await;
    drop(locks.lock("other").await.unwrap());
    drop(locks.lock_all(["a", "b"]).await.unwrap());
    assert_eq!(locks.elect("role").campaign().await.unwrap_err().kind(), LockErrorKind::ShutDown, "a role can wait");
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    let report = draining.await.unwrap();
    assert!(report.is_clean() && report.released == 1, "{report:?}");
    assert_eq!(next.lost().await, LossReason::ShutDown);
    assert_eq!(late.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(locks.lock("other").await.unwrap_err().kind(), LockErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_was_accepted_may_come_when_nobody_is_left_and_not_after_the_time() {
    let locks = serving_while_stopping();
    let report = locks.drain(10 * SECOND).await;
    assert!(report.is_clean() && report.released == 0, "nobody is waited for: {report:?}");
    tokio::time::sleep(8 * SECOND).await;
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(guard.lost().await, LossReason::ShutDown);
    assert_eq!(locks.lock("k").await.unwrap_err().kind(), LockErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn who_holds_a_lock_gets_those_inside_of_it_while_others_are_refused() {
    let locks = LockManager::for_tests();
    let outer = locks.lock("outer").run(async |_| {
        let draining = drain(&locks);
        locks.stopping().await;
        tokio::time::sleep(SECOND).await;
        let inner = locks.lock("inner").run(async |_| Ok::<_, LockError>("done")).await?;
        let both = locks.lock_all(["a", "b"]).await?.release().await.is_ok();
        Ok::<_, LockError>((draining, inner, both))
    });
    let (draining, inner, both) = outer.await.unwrap();
    assert!(inner == "done" && both);
    assert_eq!(locks.lock("other").await.unwrap_err().kind(), LockErrorKind::ShutDown);
    let report = draining.await.unwrap();
    assert!(report.is_clean() && report.released == 0, "{report:?}");
}

/// It says what is so: a manager that drains is not shut down yet, and one that serves meanwhile goes on to tell.
#[tokio::test(start_paused = true)]
#[limit]
async fn an_observer_of_an_election_is_told_why_it_hears_no_more() {
    let locks = LockManager::for_tests();
    let mut observer = locks.elect("role").observe();
    assert!(observer.changed().await.unwrap().is_none());
    let guard = locks.lock("k").await.unwrap();
    let draining = drain(&locks);
    locks.stopping().await;
    let stopping = observer.changed().await.unwrap_err().to_string();
    assert!(stopping.contains("is stopping"), "{stopping}");
    guard.release().await.unwrap();
    draining.await.unwrap();

    let locks = serving_while_stopping();
    let mut observer = locks.elect("role").observe();
    let led = locks.elect("role").announcing("here").campaign().await.unwrap();
    assert_eq!(observer.changed().await.unwrap().unwrap().announced(), Some("here"));
    let draining = drain(&locks);
    locks.stopping().await;
    led.resign().await.unwrap();
    assert!(observer.changed().await.unwrap().is_none(), "told while it drains");
    draining.await.unwrap();
    let over = observer.changed().await.unwrap_err();
    assert!(over.kind() == LockErrorKind::ShutDown && over.to_string().contains("was shut down"), "{over}");
}
