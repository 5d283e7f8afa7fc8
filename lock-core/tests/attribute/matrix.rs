//! Every shape of function over every store.

use lock_core::{LockManager, RedisStore};
use lock_testing::{EventLog, RedisServer, Reply, limit};

use crate::support::manager;
use crate::{blocking, returned, shapes};

/// Runs every shape, and returns what happened to the locks, sorted.
async fn run(locks: LockManager) -> Vec<&'static str> {
    let events = EventLog::default();
    locks.observe(events.clone());
    {
        let _default = locks.set_default();
        shapes::asynchronous(&locks).await;
        shapes::methods(&locks).await;
        returned::futures().await;
        blocking::synchronous();
    }
    shapes::bodies_that_panic(&locks).await;
    assert!(locks.shutdown(std::time::Duration::from_secs(5)).await.is_clean());
    events.assert_complete();
    let mut names = events.names();
    // After a panic the release is on its way when the key is asked for, and may be met. And a lock that a
    // slow machine holds for long is looked at once, where the store tells of changes.
    names.retain(|name| !matches!(*name, "Contended" | "Renewed"));
    names.sort_unstable();
    names
}

/// A call that runs without its lock would be missing in both, so their number is written down too: of
/// asynchronous functions, methods, functions that return futures, synchronous ones, and panics.
#[tokio::test]
#[limit]
async fn every_shape_locks_alike_over_memory_and_redis() {
    let server = RedisServer::start();
    let memory = run(manager()).await;
    let redis = run(LockManager::builder(RedisStore::new(&server.url()).unwrap()).build().unwrap()).await;
    assert_eq!(memory, redis);
    assert_eq!(memory.iter().filter(|name| **name == "Acquired").count(), 24 + 12 + 5 + 6 + 4);
    let Reply::List(left) = server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
    assert!(left.iter().all(|key| key.text() == "distributed-lock:clock"), "{left:?}");
}

/// Without any runtime, as in a program that is not asynchronous.
#[test]
#[limit]
fn synchronous_shapes_need_no_runtime() {
    let server = RedisServer::start();
    for locks in [manager(), LockManager::builder(RedisStore::new(&server.url()).unwrap()).build().unwrap()] {
        let events = EventLog::default();
        locks.observe(events.clone());
        let _default = locks.set_default();
        blocking::synchronous();
        events.assert_complete();
        assert_eq!(events.paths().len(), 6);
    }
}
