//! The deadline of a lease decides alone whether a lock is held, also before its alarm has rung. On virtual time.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::{LockErrorKind, LockGuard, LockManager, LossReason, MemoryStore, ReleaseOutcome};
use lock_testing::{EventLog, limit};

const SECOND: Duration = Duration::from_secs(1);

fn manager() -> (LockManager, EventLog) {
    let events = EventLog::default();
    let builder = LockManager::builder(MemoryStore::new()).observer(events.clone());
    (builder.with_ttl(10 * SECOND).drive_on_current_runtime().build().unwrap(), events)
}

/// The clock goes on and nothing runs, as when the whole process stood still: no alarm has rung.
fn freeze_until_the_deadline() {
    let mut pause = pin!(tokio::time::advance(Duration::from_millis(9_900)));
    assert!(pause.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

fn assert_lost(guard: &LockGuard, events: &EventLog) {
    assert_eq!(guard.ensure_held().unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!(events.count("Lost"), 0, "the alarm has not rung yet");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_release_after_the_deadline_is_a_loss_before_the_alarm_rings() {
    for in_background in [false, true] {
        let (locks, events) = manager();
        let request = locks.lock("k");
        let request = if in_background { request.release_in_background() } else { request };
        let guard = request.await.unwrap();
        freeze_until_the_deadline();
        assert_lost(&guard, &events);
        let Err(said) = guard.ensure_held() else { panic!("it is held") };
        let outcome = guard.release().await.unwrap();
        assert_eq!(
            Some(outcome),
            said.loss_reason().map(ReleaseOutcome::AlreadyLost),
            "in background: {in_background}"
        );
        assert_eq!((events.count("Lost"), events.count("Released")), (1, 0));
        events.assert_complete();
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_drop_after_the_deadline_is_a_loss() {
    let (locks, events) = manager();
    let guard = locks.lock("k").await.unwrap();
    freeze_until_the_deadline();
    drop(guard);
    assert_eq!((events.count("Lost"), events.count("Released")), (1, 0));
    // The next caller gets the lock from the store.
    let next = locks.lock("k").await.unwrap();
    next.ensure_held().unwrap();
    next.release().await.unwrap();
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_waiter_of_this_process_does_not_get_a_lease_whose_deadline_has_passed() {
    let (locks, events) = manager();
    let guard = locks.lock("k").await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").with_wait(60 * SECOND).acquire());
    while events.count("Contended") == 0 {
        tokio::task::yield_now().await;
    }
    freeze_until_the_deadline();
    assert!(matches!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(_))));
    let next = waiting.await.unwrap().unwrap();
    next.ensure_held().unwrap();
    assert!(next.remaining() > SECOND);
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!((events.count("Lost"), events.count("Released")), (1, 1));
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn every_guard_and_every_reader_of_a_lease_learns_of_the_same_loss() {
    let (locks, events) = manager();
    let readers = [locks.read("r").await.unwrap(), locks.read("r").await.unwrap()];
    let outer = locks.lock("k").await.unwrap();
    let inner = outer.scope(locks.lock("k").reentrant().acquire()).await.unwrap();
    freeze_until_the_deadline();
    for guard in readers.into_iter().chain([inner, outer]) {
        assert!(matches!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(_))));
    }
    assert_eq!((events.count("Lost"), events.count("Released")), (4, 0));
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_body_that_ends_after_the_deadline_has_not_held_the_lock() {
    let (locks, events) = manager();
    let ended = locks.lock("k").run(async |_| {
        freeze_until_the_deadline();
        Ok::<_, lock_core::LockError>(())
    });
    assert_eq!(ended.await.unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!((events.count("Lost"), events.count("Released")), (1, 0));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_max_hold_that_is_over_is_the_reason_before_its_alarm_rings() {
    let (locks, events) = manager();
    let guard = locks.lock("k").with_max_hold(5 * SECOND).await.unwrap();
    freeze_until_the_deadline();
    assert_lost(&guard, &events);
    assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), Some(LossReason::MaxHold));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::MaxHold)));
    assert_eq!(events.count("Lost"), 1);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_shutdown_after_the_deadline_does_not_change_the_reason() {
    let (locks, events) = manager();
    let guard = locks.lock("k").await.unwrap();
    freeze_until_the_deadline();
    let Err(said) = guard.ensure_held() else { panic!("it is held") };
    let _ = locks.shutdown(SECOND).await;
    assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), said.loss_reason());
    assert_eq!(guard.lost().await, said.loss_reason().unwrap());
    assert_eq!(events.count("Lost"), 1);
}
