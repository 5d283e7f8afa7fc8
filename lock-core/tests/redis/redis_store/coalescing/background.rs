//! Releases that nobody waits for leave with the next call, or alone.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lock_core::LockBackend;
use lock_store::{Claim, Freed, Release};
use lock_testing::{RedisServer, limit};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::redis_store::coalescing::{
    calls, claims, connected, exists, let_others_run, occupy, poll_once, within_seconds,
};
use crate::redis_store::{acquire, claim, granted, token};

/// A release whose answer nobody waits for.
fn ending(claim: &Claim) -> Release {
    let mut ending = Release::new(claim.clone());
    ending.in_background = true;
    ending
}

#[tokio::test]
#[limit]
async fn a_release_that_nobody_waits_for_leaves_with_the_next_call() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let [held, other, same] = ["lock:a", "lock:b", "lock:a"].map(claim);
    let first = granted(&store, &held).await;
    let before = calls(&server);
    let ending = ending(&held);
    let mut releasing = pin!(store.release(&ending));
    assert!(poll_once(releasing.as_mut()).is_pending());
    // They run in order: the release frees the key for a call that follows it in the same message.
    let second = tokio::join!(acquire(&store, &same), acquire(&store, &other)).0;
    assert!(first < token(second.unwrap()));
    assert_eq!(releasing.await.unwrap(), Freed::Released);
    assert_eq!(calls(&server) - before, 3, "a script and a transaction in one message, and the one behind them");
}

#[tokio::test]
#[limit]
async fn a_release_that_nobody_waits_for_leaves_alone_if_nothing_follows() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let held = claim("lock:a");
    granted(&store, &held).await;
    let ending = ending(&held);
    let mut releasing = pin!(store.release(&ending));
    assert!(poll_once(releasing.as_mut()).is_pending());
    // The future is not polled again, and no other call is made.
    while exists(&server, "lock:a") {
        yield_now().await;
    }
    assert_eq!(releasing.await.unwrap(), Freed::Released);
}

#[tokio::test]
#[limit]
async fn a_release_is_not_sent_that_was_dropped_before_it_left() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let held = claim("lock:a");
    granted(&store, &held).await;
    let before = calls(&server);
    {
        let ending = ending(&held);
        let mut releasing = pin!(store.release(&ending));
        assert!(poll_once(releasing.as_mut()).is_pending());
    }
    let_others_run().await;
    assert!(exists(&server, "lock:a"));
    granted(&store, &claim("lock:b")).await;
    assert_eq!(calls(&server) - before, 1);
}

#[tokio::test]
#[limit]
async fn releases_that_nobody_waits_for_fill_a_script_like_others() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let claims = claims(40);
    for claim in &claims {
        granted(&store, claim).await;
    }
    let before = calls(&server);
    let endings: Vec<_> = claims.iter().map(ending).collect();
    let mut releasing: Vec<_> = endings.iter().map(|ending| Box::pin(store.release(ending))).collect();
    releasing.iter_mut().for_each(|releasing| assert!(poll_once(releasing.as_mut()).is_pending()));
    for releasing in releasing {
        assert_eq!(within_seconds(releasing).await.unwrap(), Freed::Released);
    }
    assert_eq!(calls(&server) - before, 2, "one that is full, and the rest");
}

/// Calls that a busy worker thread holds back leave when the next answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_worker_that_is_busy_holds_nobody_up() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let [held, other] = ["lock:a", "lock:b"].map(claim);
    granted(&store, &held).await;
    server.pause();
    let first = occupy(&store).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (begun, has_begun) = oneshot::channel();
    let (end, ended) = mpsc::channel();
    let busy = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let ending = ending(&held);
            let mut releasing = pin!(store.release(&ending));
            assert!(poll_once(releasing.as_mut()).is_pending());
            begun.send(()).unwrap();
            ended.recv().unwrap();
            releasing.await
        }
    });
    has_begun.await.unwrap();
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store, &other).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.resume();
    token(within_seconds(waiting).await.unwrap().unwrap());
    end.send(()).unwrap();
    assert_eq!(busy.await.unwrap().unwrap(), Freed::Released);
    token(first.await.unwrap().unwrap());
}
