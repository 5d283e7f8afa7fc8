//! Guards in a variable, whose tasks say what they hold while they wait.

use std::time::Duration;

use lock_core::{LockErrorKind, LockManager, MemoryStore, Wait, current_lock};
use lock_testing::limit;

use super::{MS, SECOND};
use crate::rings::{Told, assert_one_gave_way, crossing_in_scopes};

#[tokio::test(start_paused = true)]
#[limit]
async fn two_tasks_with_guards_in_a_scope_are_found_and_one_gives_way() {
    let (store, told) = (MemoryStore::new(), Told::default());
    let managers = [(); 2].map(|()| {
        let manager = LockManager::builder(store.clone()).drive_on_current_runtime();
        manager.observer(told.clone()).build().unwrap()
    });
    assert_one_gave_way(&crossing_in_scopes(managers).await, &told);
}

#[test]
#[limit]
fn two_threads_with_guards_are_found_and_one_gives_way() {
    let (locks, both_hold) = (LockManager::in_memory(), std::sync::Barrier::new(2));
    let thread = |first: &str, second: &str| {
        let patient = |key: &str| locks.lock(key).with_wait(Wait::Forever);
        let first = patient(first).acquire_blocking()?;
        both_hold.wait();
        let second = first.enter(|| patient(second).acquire_blocking())?;
        second.release_blocking()?;
        first.release_blocking()
    };
    let ends = std::thread::scope(|scope| {
        [scope.spawn(|| thread("a", "b")), scope.spawn(|| thread("b", "a"))].map(|thread| thread.join().unwrap())
    });
    let gave_way: Vec<LockErrorKind> = ends.iter().filter_map(|end| Some(end.as_ref().err()?.kind())).collect();
    assert_eq!(gave_way, [LockErrorKind::WouldDeadlock]);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_time_out_says_what_the_task_holds_as_far_as_it_is_known() {
    let locks = LockManager::for_tests();
    let (other, locks) = (locks.manager(), locks.manager());
    let _taken = other.lock("wanted").await.unwrap();
    let wanted = || locks.lock("wanted").with_wait(SECOND).acquire();
    let [held, both] = [locks.lock("held").await.unwrap(), locks.lock_all(["a", "b"]).await.unwrap()];
    for (ended, known) in [
        (wanted().await, ""),
        (held.scope(wanted()).await, "; this task holds \"held\" meanwhile"),
        (both.scope(held.scope(wanted())).await, "; this task holds \"held\", \"b\", \"a\" meanwhile"),
    ] {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout);
        let (_, said) =
            error.to_string().split_once("waits for this caller").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(said, known);
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_scope_ends_with_its_future_and_knows_only_what_is_held() {
    let locks = LockManager::for_tests();
    let locks = locks.manager();
    let guard = locks.lock("k").with_ttl(2 * SECOND).await.unwrap();
    let again = || locks.lock("k").with_wait(60 * SECOND);
    guard
        .scope(async {
            assert_eq!(again().await.unwrap_err().kind(), LockErrorKind::WouldDeadlock);
            let inner = again().reentrant().await.unwrap();
            assert_eq!(current_lock().unwrap().token(), inner.token());
            tokio::time::sleep(100 * MS).await;
            assert!(current_lock().is_some());
        })
        .await;
    assert!(current_lock().is_none());
    assert!(guard.enter(|| current_lock().is_some()));
    guard.extend(Duration::from_secs(3)).await.unwrap();
    let carried = guard.enter(lock_core::LockContext::current);
    guard.release().await.unwrap();
    carried.scope(async { again().await.unwrap().release().await.unwrap() }).await;
}
