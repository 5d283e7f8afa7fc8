//! Releases that nobody awaits: of dropped guards, and of requests that asked for it.

use std::time::Duration;

use lock_core::{LockErrorKind, LockManager, ReleaseOutcome};
use lock_testing::{RedisServer, limit};
use tokio::runtime::Builder;

use crate::support::{LONG, MS, SECOND, eventually, exists, figure, locked_keys, locks};

/// How many releases may be on their way, as in the engine.
const LIMIT: usize = 4096;

#[test]
#[limit]
fn a_release_in_the_background_needs_no_runtime_of_its_caller() {
    let server = RedisServer::start();
    let callers = Builder::new_current_thread().enable_all().build().unwrap();
    let manager = callers.block_on(async {
        let locks = locks(&server);
        let guard = locks.lock("k").with_ttl(LONG).release_in_background().await.unwrap();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::InBackground));
        locks
    });
    // The caller's runtime is not driven any more, but both it and the manager are alive.
    let watch = Builder::new_current_thread().enable_all().build().unwrap();
    watch.block_on(eventually("the lock is freed", || !exists(&server, "k")));
    drop((manager, callers));
}

#[test]
#[limit]
fn the_last_handle_waits_for_a_release_in_the_background() {
    let server = RedisServer::start();
    for round in 0..10 {
        let callers = Builder::new_current_thread().enable_all().build().unwrap();
        callers.block_on(async {
            let locks = locks(&server);
            let guard = locks.lock("k").with_ttl(LONG).release_in_background().await.unwrap();
            guard.release().await.unwrap();
        });
        assert!(!exists(&server, "k"), "round {round}: the program could have ended here");
    }
}

/// Takes many locks and drops their guards.
async fn drop_guards(locks: &LockManager, tasks: usize, each: usize) {
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for number in 0..each {
                    let key = format!("lock:{task}:{number}");
                    drop(locks.lock(&key).with_ttl(LONG).with_wait(LONG).await.unwrap());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn guards_that_are_dropped_faster_than_the_store_frees_them_cost_time_and_not_memory() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let tasks = 64;
    drop_guards(&locks, tasks, 300).await;
    let left = locked_keys(&server).len();
    figure("locks left when 19,200 guards have been dropped", left);
    assert!(left <= LIMIT + tasks, "{left} locks are left");
    eventually("all are freed", || locked_keys(&server).is_empty()).await;
}

#[tokio::test]
#[limit(180)]
async fn while_too_many_releases_are_on_their_way_new_claims_wait_within_their_budget() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut guards = Vec::new();
    for number in 0..LIMIT {
        guards.push(locks.lock(format!("lock:{number}")).with_ttl(LONG).await.unwrap());
    }
    server.pause();
    drop(guards);
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "a try waits for nothing: {refused}");
    assert!(refused.to_string().contains("await release()"), "{refused}");
    let refused = locks.lock_all(["k", "l"]).try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
    let refused = locks.lock("k").with_wait(50 * MS).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
    let waiting = tokio::spawn(locks.lock("k").with_wait(60 * SECOND).acquire());
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.resume();
    waiting.await.unwrap().expect("there is room again").release().await.unwrap();
    eventually("all are freed", || locked_keys(&server).is_empty()).await;
}
