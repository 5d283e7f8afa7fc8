use lock_testing::limit;
use std::sync::Arc;
use std::time::Duration;

use crate::{LockContext, LockManager, LockRequest, assert_locked, current_lock};
use lock_store::contract::event::GrantPath;
use lock_store::types::error::{LockError, LockErrorKind, Result};

fn soon(request: LockRequest) -> LockRequest {
    request.with_wait(Duration::from_secs(60))
}

#[tokio::test]
#[limit]
async fn a_nested_acquire_of_the_same_key_is_refused_at_once() {
    let locks = LockManager::in_memory();
    let inner: Result<()> = locks
        .lock("k")
        .run(async |_| {
            assert!(locks.lock("other").run(async |_| Ok::<_, LockError>(())).await.is_ok());
            let blocking = soon(locks.lock("k")).acquire_blocking().map(drop);
            assert_eq!(blocking.unwrap_err().kind(), LockErrorKind::WouldDeadlock);
            assert!(locks.lock("k").try_acquire().await?.is_none());
            assert!(LockManager::in_memory().lock("k").await.is_ok(), "another store has its own locks");
            soon(locks.lock("k")).acquire().await.map(drop)
        })
        .await;
    assert_eq!(inner.unwrap_err().kind(), LockErrorKind::WouldDeadlock);
    let _guard = locks.lock("k").try_acquire().await.unwrap().unwrap();
}

#[tokio::test]
#[limit]
async fn re_entry_shares_the_grant_until_the_last_guard() {
    let locks = LockManager::in_memory();
    let paths = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&paths);
    locks.observe(move |event: &crate::LockEvent<'_>| {
        if let crate::LockEventKind::Acquired { path, .. } = event.kind {
            seen.lock().unwrap().push(path);
        }
    });
    let outlives = locks
        .lock("k")
        .run(async |outer| {
            let inner = soon(locks.lock("k")).reentrant().acquire().await?;
            assert_eq!(inner.token(), outer.token());
            soon(locks.lock("k")).reentrant().acquire().await?.release().await?;
            outer.ensure_held()?;
            Ok::<_, LockError>(inner)
        })
        .await
        .unwrap();
    assert_eq!(*paths.lock().unwrap(), [GrantPath::Uncontended, GrantPath::Reentrant, GrantPath::Reentrant]);
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none(), "the inner guard still holds it");
    outlives.ensure_held().unwrap();
    outlives.release().await.unwrap();
    let _guard = locks.lock("k").try_acquire().await.unwrap().unwrap();
}

#[tokio::test]
#[limit]
async fn the_context_follows_the_task_and_nothing_else() {
    let locks = LockManager::in_memory();
    assert!(current_lock().is_none());
    let carried = locks
        .lock("k")
        .run(async |guard| {
            tokio::task::yield_now().await;
            assert_locked("k");
            assert_eq!(current_lock().map(|lock| lock.token()), Some(guard.token()));
            assert!(std::thread::spawn(|| current_lock().is_none()).join().unwrap());
            let context = LockContext::current();
            assert!(context.clone().scope(async { current_lock().is_some() }).await);
            assert!(std::thread::spawn(move || context.enter(|| current_lock().is_some())).join().unwrap());
            Ok::<_, LockError>(LockContext::current())
        })
        .await
        .unwrap();
    assert!(current_lock().is_none());
    assert!(carried.enter(|| current_lock().is_none()), "a lock that ended is in no context");
    let again = carried.scope(async { soon(locks.lock("k")).acquire().await.map(drop) }).await;
    again.unwrap();
}

#[tokio::test]
#[limit]
#[should_panic(expected = "the lock \"k\" is not held here")]
async fn assert_locked_panics_without_a_lock() {
    assert_locked("k");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn contexts_do_not_leak_between_tasks() {
    let locks = LockManager::in_memory();
    let tasks: Vec<_> = (0..50)
        .map(|index| {
            let locks = locks.clone();
            #[expect(clippy::disallowed_methods, reason = "a test may spawn")]
            tokio::spawn(async move {
                let key = format!("k{}", index % 5);
                locks
                    .lock(&key)
                    .run(async |guard| {
                        for _ in 0..20 {
                            tokio::task::yield_now().await;
                            assert_eq!(current_lock().map(|lock| lock.token()), Some(guard.token()));
                        }
                        Ok::<_, LockError>(())
                    })
                    .await
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}
