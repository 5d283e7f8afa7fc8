//! A wait is told of while it lasts, on a real server.

use std::time::Duration;

use lock_core::LockManager;
use lock_testing::{RedisServer, Reply, limit};

use crate::support::{SECOND, eventually, locks_at};
use crate::waits::{Told, wait};

#[tokio::test]
#[limit]
async fn a_waiter_on_redis_learns_who_holds_the_lock() {
    let server = RedisServer::start();
    let (holder, first, second) = (locks_at(&server.url()), locks_at(&server.url()), locks_at(&server.url()));
    let guard = holder.lock("k").with_site("shop::charge").await.unwrap();
    let (early, late) = (Told::default(), Told::default());
    let before = wait(&first, Duration::from_secs(50), &early);
    eventually("the first waits", || server.command(&["ZCARD", "{k}@queue"]) == Reply::Int(1)).await;
    let behind = wait(&second, Duration::from_secs(50), &late);
    eventually("both are told", || !early.all().is_empty() && !late.all().is_empty()).await;
    let (one, two) = (early.all().remove(0), late.all().remove(0));
    assert_eq!((one.before, two.before), (Some(0), Some(1)));
    assert_eq!(one.holder.as_ref().unwrap().site(), "shop::charge");
    assert!(one.held_for.unwrap() >= SECOND && one.waited >= SECOND, "{one}");
    drop(guard);
    drop(before.await.unwrap().unwrap());
    drop(behind.await.unwrap().unwrap());
}

/// A server that stands still is told of after a second, although no answer has come.
#[tokio::test]
#[limit]
async fn a_server_that_stands_still_is_told_as_unknown() {
    let server = RedisServer::start();
    let locks: LockManager = locks_at(&server.url());
    locks.lock("other").await.unwrap().release().await.unwrap();
    server.pause();
    let told = Told::default();
    let waiting = wait(&locks, Duration::from_secs(50), &told);
    eventually("it is told", || !told.all().is_empty()).await;
    let first = told.all().remove(0);
    assert!(first.unknown.is_some() && first.waited < 4 * SECOND, "{first}");
    server.resume();
    drop(waiting.await.unwrap().unwrap());
}
