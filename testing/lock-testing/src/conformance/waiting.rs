//! The rules on which a waiter relies, even if it does not wait to the end.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::Stopwatch;
use crate::conformance::tools::{MS, PATIENCE, SECOND, give_back, key, pause, take};
use lock_core::{LockManager, ReleaseOutcome};
use lock_store::types::error::LockErrorKind;

/// Gives up after the time that the caller wants to wait, and not earlier. Names the holder.
pub async fn budget([one, two, _]: [LockManager; 3]) {
    let key = key("budget");
    let guard = take(&one, &key).await;
    for other in [&one, &two] {
        let (wait, watch) = (2 * SECOND, Stopwatch::start());
        let late = other.lock(&key).with_wait(wait).await;
        let late = late.err().unwrap_or_else(|| panic!("budget: a taken lock was granted"));
        watch.assert_within(wait, "budget");
        assert!(watch.elapsed() >= wait, "budget: it gave up too early");
        assert_eq!(late.kind(), LockErrorKind::Timeout, "{late}");
        assert!(late.holder().is_some(), "a time-out must name the holder: {late}");
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

/// Waits behind a holder of another process, and gets the lock when it is released.
pub async fn turn([one, two, _]: [LockManager; 3]) {
    let key = key("turn");
    let guard = take(&one, &key).await;
    let token = guard.token();
    let (local, remote) = tokio::join!(
        async {
            pause(200 * MS).await;
            guard.release().await
        },
        two.lock(&key).with_wait(PATIENCE).acquire(),
    );
    assert_eq!(local, Ok(ReleaseOutcome::Released));
    let remote = remote.unwrap_or_else(|error| panic!("a waiter must be granted after the release: {error}"));
    assert!(remote.token() > token);
}

/// Lets waiters with different budgets queue. Each gives up at its own time, without delaying the others.
pub async fn patience([one, two, _]: [LockManager; 3]) {
    let key = key("patience");
    let guard = take(&one, &key).await;
    let give_up = |manager: &LockManager, wait: Duration| {
        let acquire = manager.lock(&key).with_wait(wait).acquire();
        async move {
            let watch = Stopwatch::start();
            assert!(acquire.await.is_err(), "patience: a taken lock was granted");
            watch.assert_within(wait, "patience");
            assert!(watch.elapsed() >= wait, "patience: it gave up too early");
        }
    };
    let (served, ()) = tokio::join!(two.lock(&key).with_wait(PATIENCE).acquire(), async {
        tokio::join!(give_up(&two, 300 * MS), give_up(&one, 200 * MS), give_up(&two, 500 * MS));
        let _ = guard.release().await;
    });
    let served = served.unwrap_or_else(|error| panic!("a patient waiter must be served: {error}"));
    give_back(served).await;
    assert!(matches!(one.lock(&key).try_acquire().await, Ok(Some(_))), "and the lock be free afterwards");
}

/// Drops acquires after each of their first polls, and checks that no key stays taken.
pub async fn cancellation([one, two, _]: [LockManager; 3]) {
    for polls in 0..40 {
        let key = key("cancellation");
        {
            let mut acquire = pin!(one.lock(&key).with_wait(PATIENCE).acquire());
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if let Poll::Ready(guard) = acquire.as_mut().poll(&mut cx) {
                    drop(guard);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let next = two.lock(&key).with_wait(PATIENCE).await;
        let next = next.unwrap_or_else(|error| panic!("an acquire cut after {polls} polls left its key: {error}"));
        give_back(next).await;
    }
}

/// Drops waiters of the queue while the lock passes on. The waiters behind them must still be served.
pub async fn abandoned_places([one, two, three]: [LockManager; 3]) {
    for round in 0..20 {
        let key = key("abandoned places");
        let guard = take(&one, &key).await;
        let mut leaving = Box::pin(two.lock(&key).with_wait(PATIENCE).acquire());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..4 {
            assert!(leaving.as_mut().poll(&mut cx).is_pending());
            pause(5 * MS).await;
        }
        let staying = three.lock(&key).with_wait(PATIENCE).acquire();
        let (staying, ()) = tokio::join!(staying, async {
            pause(20 * MS).await;
            let release = guard.release();
            if round % 2 == 0 {
                drop(leaving);
                let _ = release.await;
            } else {
                let _ = release.await;
                drop(leaving);
            }
        });
        let staying = staying.unwrap_or_else(|error| panic!("a waiter behind one that left: {error}"));
        give_back(staying).await;
    }
}
