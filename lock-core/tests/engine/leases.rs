//! A lease outlives the process that took it.

use std::time::{Duration, UNIX_EPOCH};

use lock_core::lease::{Lease, of_site};
use lock_core::store::MIN_FIXED_TTL;
use lock_core::{LockErrorKind, LockManager, LossReason, MemoryStore, ReleaseOutcome, Wait, distributed_lock};
use lock_testing::{EventLog, limit};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Two processes, as far as the store can tell.
fn processes() -> (LockManager, LockManager, MemoryStore) {
    let store = MemoryStore::new();
    let process = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    (process(), process(), store)
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lease_outlives_its_process_and_ends_with_its_ttl() {
    let (first, second, _) = processes();
    let lease = first.lease("k").holder("ci-1").ttl(600 * SECOND).reason("release 42").acquire().await.unwrap();
    assert_eq!((lease.holder.as_str(), lease.key.as_str(), lease.ttl), ("ci-1", "k", 600 * SECOND));
    // The process ends: a shutdown releases every guard, and no lease.
    assert_eq!(first.shutdown(SECOND).await.released, 0);
    drop((lease, first));
    tokio::time::sleep(599 * SECOND).await;
    let error = second.lock("k").without_waiting().await.unwrap_err();
    let holder = error.holder().unwrap();
    assert_eq!(of_site(holder.site()), Some(("ci-1", "release 42")), "{error}");
    tokio::time::sleep(2 * SECOND).await;
    drop(second.lock("k").without_waiting().await.unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_same_holder_renews_and_another_waits_its_turn() {
    let (first, second, _) = processes();
    let one = first.lease("k").holder("ci-1").ttl(600 * SECOND).acquire().await.unwrap();
    // Not a deadlock, although it would wait for an hour.
    let again = second.lease("k").holder("ci-1").ttl(900 * SECOND).wait(HOUR).acquire().await.unwrap();
    assert!(again.token > one.token && one.token.is_some());
    let refused = second.lease("k").holder("ci-1").wait(HOUR).exclusive_holder().acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Busy);
    // A renewal never shortens it.
    let mut found = second.lease("k").holder("ci-1").ttl(SECOND).find().await.unwrap().unwrap();
    found.renew(&second).await.unwrap();
    tokio::time::sleep(800 * SECOND).await;
    let other = || second.lease("k").holder("ci-2");
    assert_eq!(other().wait(Wait::None).acquire().await.unwrap_err().kind(), LockErrorKind::Busy);
    assert!(other().find().await.unwrap().is_none());
    let waiting = tokio::spawn(other().wait(HOUR).acquire());
    tokio::time::sleep(SECOND).await;
    assert_eq!(found.release(&second).await.unwrap(), ReleaseOutcome::Released);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token > again.token);
    assert!(first.lease("k").holder("ci-1").find().await.unwrap().is_none());
}

/// A late or repeated release of one grant frees no later grant of the same holder.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_late_release_frees_no_later_lease_of_the_same_holder() {
    let (first, second, _) = processes();
    let mut one = first.lease("k").holder("ci-1").ttl(60 * SECOND).acquire().await.unwrap();
    let found = second.lease("k").holder("ci-1").find().await.unwrap().unwrap();
    assert_eq!(found.release(&second).await.unwrap(), ReleaseOutcome::Released);
    let two = second.lease("k").holder("ci-1").ttl(60 * SECOND).acquire().await.unwrap();
    assert_eq!(one.release(&first).await.unwrap(), ReleaseOutcome::AlreadyLost(LossReason::Stolen));
    assert_eq!(one.renew(&first).await.unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!(two.release(&second).await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lease_is_passed_on_as_text() {
    let (first, second, _) = processes();
    let lease = first.lease("a key: with spaces").holder("é@ci:1").ttl(60 * SECOND).acquire().await.unwrap();
    let text = lease.to_string();
    assert!(!format!("{lease:?}").contains(text.split(' ').nth(1).unwrap()), "Debug shows no owner");
    let mut read: Lease = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    assert_eq!((&read.key, &read.holder, read.token), (&lease.key, &lease.holder, lease.token));
    let json = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<Lease>(&json).unwrap(), read);
    tokio::time::sleep(50 * SECOND).await;
    read.renew(&second).await.unwrap();
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(read.release(&second).await.unwrap(), ReleaseOutcome::Released);
    let owner = "1".repeat(32);
    for bad in ["", "lease1", &text[1..], &text.replace("é@ci:1", "|"), &format!("lease1 {owner} 1 {} 1 a k", u64::MAX)]
    {
        let error = bad.parse::<Lease>().unwrap_err();
        assert!(!error.to_string().contains(&owner), "{error}");
    }
    assert!(read.expires_at > UNIX_EPOCH);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn mistakes_are_refused() {
    let (locks, _, _) = processes();
    let long = "x".repeat(65);
    for holder in ["", "a b", "a|b", "a\tb", long.as_str()] {
        let error = locks.lease("k").holder(holder).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    }
    for ttl in [Duration::ZERO, MIN_FIXED_TTL / 2, Duration::MAX] {
        assert_eq!(
            locks.lease("k").holder("a").ttl(ttl).find().await.unwrap_err().kind(),
            LockErrorKind::Misconfigured
        );
    }
    assert_eq!(locks.lease("").holder("a").find().await.unwrap_err().kind(), LockErrorKind::InvalidKey);
}

#[distributed_lock(key = "k", wait = "none")]
async fn annotated() -> Result<(), lock_core::LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lease_and_guards_exclude_each_other() {
    let (first, second, _) = processes();
    let lease = first.lease("k").holder("ci-1").ttl(HOUR).acquire().await.unwrap();
    assert_eq!(second.scope(annotated()).await.unwrap_err().kind(), LockErrorKind::Busy);
    assert_eq!(first.scope(annotated()).await.unwrap_err().kind(), LockErrorKind::Busy, "also in its own process");
    assert!(first.read("k").try_acquire().await.unwrap().is_none());
    lease.release(&first).await.unwrap();
    second.scope(annotated()).await.unwrap();
    // A guard of the same process is in the way too, and its release grants the lease.
    let guard = first.lock("k").await.unwrap();
    let waiting = tokio::spawn(first.lease("k").holder("ci-1").ttl(HOUR).wait(HOUR).acquire());
    tokio::time::sleep(SECOND).await;
    guard.release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    tokio::time::sleep(600 * SECOND).await;
    assert!(second.lock("k").try_acquire().await.unwrap().is_none(), "a grant from a queue lasts the whole ttl too");
    lease.release(&second).await.unwrap();
}

/// Both wait in the queue. The first is granted it, and the second is the same holder.
#[tokio::test(start_paused = true)]
#[limit]
async fn two_processes_of_one_holder_that_wait_both_get_it() {
    let (first, second, store) = processes();
    let third = LockManager::builder(store).drive_on_current_runtime().build().unwrap();
    let guard = third.lock("k").with_ttl(HOUR).await.unwrap();
    let ask = |locks: &LockManager| tokio::spawn(locks.lease("k").holder("ci-1").ttl(HOUR).wait(HOUR).acquire());
    let (one, two) = (ask(&first), ask(&second));
    tokio::time::sleep(SECOND).await;
    guard.release().await.unwrap();
    let (one, two) = (one.await.unwrap().unwrap(), two.await.unwrap().unwrap());
    assert_ne!(one.token, two.token);
    assert!(third.lock("k").try_acquire().await.unwrap().is_none());
    // Either of them releases it for both.
    assert_eq!(two.release(&third).await.unwrap(), ReleaseOutcome::Released);
    assert!(matches!(one.release(&third).await.unwrap(), ReleaseOutcome::AlreadyLost(_)));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_dropped_acquire_leaves_no_lease_behind() {
    let (first, second, store) = processes();
    let events = EventLog::default();
    first.observe(events.clone());
    let guard = second.lock("k").with_ttl(HOUR).await.unwrap();
    let waiting = tokio::spawn(first.lease("k").holder("ci-1").ttl(HOUR).wait(HOUR).acquire());
    tokio::time::sleep(SECOND).await;
    waiting.abort();
    guard.release().await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    assert!(store.is_empty());
    // The lease that the holder had before stays.
    let lease = first.lease("k").holder("ci-1").ttl(HOUR).acquire().await.unwrap();
    let again = tokio::spawn(first.lease("k").holder("ci-1").ttl(HOUR).acquire());
    again.abort();
    tokio::time::sleep(SECOND).await;
    assert_eq!(lease.release(&second).await.unwrap(), ReleaseOutcome::Released);
    events.assert_complete();
}
