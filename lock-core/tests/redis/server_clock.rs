//! The wall clock of the server jumps: leases follow it, and tokens are drawn from it.

use lock_core::{FencingGate, HolderInfo, LockBackend, LockErrorKind, LockKey, LossReason, RedisStore, ReleaseOutcome};
use lock_store::{AcquireRequest, Attempt, Claim};
use lock_testing::{Direction, EventLog, FaultProxy, limit};

use crate::support::{Movable, SECOND, eventually, locks, lost, pttl, renewals, take, watched};

impl Movable {
    /// Moves the clock by a number of seconds, and waits until the server has read it.
    async fn jump(&self, seconds: i64) {
        let before = self.time();
        self.set(seconds);
        eventually("the clock moved", || (self.time() - before).abs() >= seconds.abs() - 60).await;
    }
}

#[tokio::test]
#[limit]
async fn a_jump_forward_ends_leases_and_the_holder_is_told() {
    let movable = Movable::start();
    let events = EventLog::default();
    let (others, locks) = (locks(&movable.server), locks(&movable.server));
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    renewals(&events, 2).await;
    let resource = FencingGate::new();
    resource.admit(guard.token()).unwrap();

    movable.jump(3600).await;
    let next = take(&others, "k").await;
    assert_eq!(lost(&guard).await, LossReason::Stolen);
    assert_eq!(guard.ensure_held().unwrap_err().kind(), LockErrorKind::Lost);
    // For a moment the two worked at the same time. A resource that checks tokens refuses the older
    // one.
    assert!(next.token() > guard.token());
    resource.admit(next.token()).unwrap();
    resource.admit(guard.token()).unwrap_err();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
#[limit]
async fn a_jump_back_keeps_leases_and_the_order_of_tokens() {
    let movable = Movable::start();
    let events = EventLog::default();
    let locks = locks(&movable.server);
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    renewals(&events, 2).await;
    movable.jump(-3600).await;
    renewals(&events, 5).await;
    guard.ensure_held().unwrap();
    let token = guard.token();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    // By the server's time, the last token lies in the future.
    let next = take(&locks, "k").await;
    assert!(next.token() > token, "{:?} after {token:?}", next.token());
    let left = pttl(&movable.server, "k");
    assert!(left <= 30_000, "a lease that is taken after the jump is as long as any, {left} ms");
    drop(next);
    eventually("it is free", || pttl(&movable.server, "k") == -2).await;
}

/// A deadline counts by the clock of the server, which is an hour behind ours.
#[tokio::test]
#[limit]
async fn an_attempt_that_arrives_late_takes_nothing_although_the_clock_is_behind() {
    let movable = Movable::start();
    movable.jump(-3600).await;
    let between = FaultProxy::start(movable.server.port());
    let store = RedisStore::new(&between.url()).unwrap();
    let ask = |key: &str| {
        let claim = Claim::new(LockKey::new(key).unwrap(), 600 * SECOND);
        let mut request = AcquireRequest::new(claim, HolderInfo::new("host", 1, "site"));
        // By the script: one without it has no deadline.
        (request.repeated, request.execute_within) = (true, SECOND);
        request
    };
    let mut patient = ask("in time");
    patient.execute_within = 60 * SECOND;
    let in_time = store.try_acquire(&patient).await;
    assert!(matches!(in_time, Ok(Attempt::Granted { .. })), "{in_time:?}");
    // Data that is written meanwhile arrives that much later.
    between.delay(Direction::ToServer, 2 * SECOND);
    let late = store.try_acquire(&ask("late")).await;
    assert!(!matches!(late, Ok(Attempt::Granted { .. })), "{late:?}");
    assert_eq!(pttl(&movable.server, "late"), -2);
}
