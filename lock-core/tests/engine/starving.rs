//! A loop around a request that fails at once does not starve the runtime that it runs on.

use std::sync::mpsc;
use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use lock_testing::limit;

/// Runs a loop around a request as a task of a runtime of one thread, and requires that the main task of the runtime is
/// polled beside it, and that the runtime ends.
fn leaves_room<F: Future + Send>(what: &str, request: impl Fn(LockManager, &'static LockGuard) -> F + Send + 'static)
where
    F::Output: Send,
{
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = LockManager::in_memory();
            let held: &'static LockGuard = Box::leak(Box::new(locks.lock("held").await.unwrap()));
            let over = LockManager::in_memory();
            let _ = over.shutdown(Duration::from_secs(5)).await;
            let managers = [over, locks];
            tokio::spawn(async move {
                loop {
                    for locks in &managers {
                        drop(request(locks.clone(), held).await);
                    }
                }
            });
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        drop(runtime);
        let _ = done.send(());
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok(), "{what} starves the runtime");
}

#[test]
#[limit]
fn no_request_that_fails_at_once_starves_a_runtime() {
    const FOREVER: Duration = Duration::from_secs(3600);
    leaves_room("acquire after a shutdown", |locks, _| async move {
        // The manager that runs finds the key held by this process.
        let request = locks.lock("held").without_waiting();
        if locks.lock("k").without_waiting().await.is_err() {
            locks.lock("k").await.is_ok()
        } else {
            request.await.is_ok()
        }
    });
    leaves_room("try_acquire of a key that is held here", |locks, _| locks.lock("held").try_acquire());
    leaves_room("acquire() of a key that is held here", |locks, _| locks.lock("held").without_waiting().acquire());
    leaves_room("several keys", |locks, _| locks.lock_all(["held", "other"]).without_waiting().acquire());
    leaves_room("a permit", |locks, _| locks.semaphore("s", 1).with_weight(2).acquire());
    leaves_room("an empty key", |locks, _| async move { locks.lock("").await.is_ok() });
    leaves_room("options that contradict each other", |locks, _| locks.lock("k").with_ttl(Duration::ZERO).acquire());
    leaves_room("a lock that the task holds itself", |locks, held| held.scope(locks.lock("held").acquire()));
    leaves_room("an extension out of bounds", |_, held| held.extend(FOREVER * 24 * 365));
    leaves_room("a body", |locks, _| async move {
        let body = async |_: &LockGuard| Ok::<_, lock_core::LockError>(());
        locks.lock("held").without_waiting().run(body).await.is_ok()
    });
    leaves_room("a job", |locks, _| async move {
        let work = async |_: &LockGuard| Ok::<_, lock_core::LockError>(());
        locks.lock("held").at_most_every(Duration::from_secs(60)).run(work).await.is_ok()
    });
    leaves_room("a stripe", |locks, _| locks.striped("s", 4).lock("k").without_waiting().acquire());
    leaves_room("an election", |locks, _| async move { locks.elect("e").campaign().await.is_ok() });
    leaves_room("an observation", |locks, _| async move { locks.elect("e").observe().changed().await.is_ok() });
}
