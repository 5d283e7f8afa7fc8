//! Helpers that the rules share.

use std::future::Future;
use std::time::Duration;

use lock_core::{LockGuard, LockManager, ReleaseOutcome};
use lock_store::contract::backend::{Inbox, LockBackend};
use lock_store::types::error::LossReason;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::{Clock, Timestamp};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// How long to wait for an event that must happen. This is less than the default lease, which would end by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Names a key that no other run uses.
pub(super) fn key(rule: &str) -> LockKey {
    let key = LockKey::new(format!("conformance:{rule}:{}", &OwnerId::random().to_hex()[..12]));
    key.unwrap_or_else(|error| panic!("{error}"))
}

pub(super) async fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the suite measures stores that live in real time")]
    tokio::time::sleep(time).await;
}

/// Waits until the store has ended a lease of this ttl. It may round leases up.
pub(super) async fn outlast(store: &impl LockBackend, ttl: Duration) {
    let known = store.capabilities();
    pause(ttl.max(known.min_lease) + known.lease_step + 100 * MS).await;
}

pub(super) fn now() -> Timestamp {
    Clock::system().now()
}

/// Checks a condition that must hold for a while after `since`. A failure is excused if the machine was so slow that
/// the check came too late.
#[track_caller]
pub(super) fn lasts(so: bool, since: Timestamp, at_least: Duration, rule: &str) {
    assert!(so || now().since(since) >= at_least, "{rule}");
}

pub(super) async fn take(manager: &LockManager, key: &LockKey) -> LockGuard {
    let taken = manager.lock(key).with_wait(PATIENCE).await;
    taken.unwrap_or_else(|error| panic!("a free lock must be granted: {error}"))
}

/// Releases a lock that was not taken away. At worst, a stall of the machine has ended its lease.
pub(super) async fn give_back(guard: LockGuard) {
    let released = guard.release().await;
    let by_time = [LossReason::Expired, LossReason::Unreachable].map(ReleaseOutcome::AlreadyLost);
    let allowed = |outcome: &ReleaseOutcome| *outcome == ReleaseOutcome::Released || by_time.contains(outcome);
    assert!(released.as_ref().is_ok_and(allowed), "a lock that is held must be released: {released:?}");
}

/// Checks a rule while the store listens to its messages for an inbox.
pub(super) async fn driven(store: &impl LockBackend, inbox: &Inbox, rule: impl Future<Output = ()>) {
    tokio::select! {
        () = rule => {}
        error = store.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
    }
}

/// Waits until the store sends grants to an inbox.
pub(super) async fn hears(inbox: &Inbox) {
    let open = async {
        while !inbox.is_open() {
            pause(5 * MS).await;
        }
    };
    soon("the store takes grants", open).await;
}

/// Waits for an event that must happen.
pub(super) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    #[expect(clippy::disallowed_methods, reason = "the suite measures stores that live in real time")]
    let output = tokio::time::timeout(PATIENCE, future).await;
    output.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}
