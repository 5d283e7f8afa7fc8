//! Acquires that nobody polls: the turn comes, and the future is elsewhere.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lock_core::{LockGuard, LockManager, ReleaseOutcome, Result};
use lock_testing::{EventLog, RedisServer, limit};

use crate::support::{LONG, MS, SECOND, cut_after, eventually, locked_keys, locks, take};

type Acquire = Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>;

/// An acquire that waits behind a holder, and is left there.
async fn left(locks: &LockManager) -> Acquire {
    let mut acquire: Acquire = Box::pin(locks.lock("k").with_ttl(LONG).acquire());
    let (output, polls) = cut_after(1, acquire.as_mut()).await;
    assert!(output.is_none() && polls == 1, "it waits");
    acquire
}

/// Takes the lock for a moment, as another process.
async fn passes_through(locks: &LockManager) {
    let guard = locks.lock("k").with_wait(30 * SECOND).await.expect("an acquire that nobody polls keeps nobody out");
    guard.release().await.unwrap();
}

/// A hold shorter than a slice is passed on as it is; a longer one is released along with the next claim.
async fn is_taken_back_after(hold: Duration) {
    let server = RedisServer::start();
    let (here, elsewhere) = (locks(&server), locks(&server));
    let first = here.lock("k").with_ttl(LONG).await.unwrap();
    let second = left(&here).await;
    let mut third = left(&here).await;
    tokio::time::sleep(hold).await;
    first.release().await.unwrap();
    passes_through(&elsewhere).await;
    // The lock is free, so callers get it in the order in which they are polled again.
    let guard = tokio::time::timeout(30 * SECOND, &mut third).await.expect("it is polled").unwrap();
    passes_over(guard, second).await;
    eventually("nothing is left", || locked_keys(&server).is_empty()).await;
}

/// Releases a lock to an acquire that is polled again.
async fn passes_over(guard: LockGuard, next: Acquire) {
    let (released, next) = tokio::join!(guard.release(), tokio::time::timeout(30 * SECOND, next));
    released.unwrap();
    next.expect("it is polled").unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_lock_handed_to_a_future_that_is_not_polled_goes_to_the_fleet() {
    is_taken_back_after(Duration::ZERO).await;
}

#[tokio::test]
#[limit]
async fn a_release_that_a_future_was_to_send_is_sent_although_it_is_not_polled() {
    is_taken_back_after(50 * MS).await;
}

/// Behind it others wait that nobody polls either: the answer does not wait for one after the other.
async fn is_answered_when_it_has_arrived(hold: Duration) {
    let server = RedisServer::start();
    let (here, elsewhere) = (locks(&server), locks(&server));
    let first = here.lock("k").with_ttl(LONG).await.unwrap();
    let mut asleep = Vec::new();
    for _ in 0..5 {
        asleep.push(left(&here).await);
    }
    tokio::time::sleep(hold).await;
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    let theirs = elsewhere.lock("k").try_acquire().await.unwrap().expect("the store has it");
    theirs.release().await.unwrap();
    drop(asleep);
    eventually("nothing is left", || locked_keys(&server).is_empty()).await;
}

#[tokio::test]
#[limit]
async fn a_release_is_answered_when_the_store_has_what_nobody_took() {
    is_answered_when_it_has_arrived(Duration::ZERO).await;
}

#[tokio::test]
#[limit]
async fn a_release_is_answered_when_the_store_has_what_nobody_sent() {
    is_answered_when_it_has_arrived(50 * MS).await;
}

#[tokio::test]
#[limit]
async fn a_release_is_answered_when_the_next_holder_has_the_lock() {
    let locks = LockManager::in_memory();
    let first = take(&locks, "k").await;
    let mut next = left(&locks).await;
    let mut release = Box::pin(first.release());
    let early = poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await;
    assert!(early.is_pending(), "nobody has it yet");
    let second = next.as_mut().await.unwrap();
    assert_eq!(release.await, Ok(ReleaseOutcome::Released));
    second.ensure_held().unwrap();
}

#[tokio::test]
#[limit]
async fn whoever_is_polled_is_not_kept_behind_those_who_are_not() {
    let server = RedisServer::start();
    let (here, events) = (locks(&server), EventLog::default());
    here.observe(events.clone());
    let first = take(&here, "k").await;
    let (mut asleep, mut acquires) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        asleep.push(left(&here).await);
        let here = here.clone();
        acquires.push(tokio::spawn(async move { here.lock("k").await?.release().await }));
        let asked = 2 * acquires.len() + 1;
        eventually("it waits", || events.count("WaitStarted") == asked).await;
    }
    first.release().await.unwrap();
    for acquire in acquires {
        acquire.await.unwrap().unwrap();
    }
    drop(asleep);
    eventually("nothing is left", || locked_keys(&server).is_empty()).await;
}
