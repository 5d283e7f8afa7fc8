//! One name over several locks: by id, all, or whichever is free.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::{KeyBuilder, LockError, LockErrorKind, LockManager, Striped};
use lock_testing::{EventLog, limit};

const SECOND: Duration = Duration::from_secs(1);

/// Two ids of one stripe, and one of another.
fn ids(striped: &Striped) -> [u32; 3] {
    let first = striped.stripe_of(0);
    let find = |same: bool| (1..).find(|id: &u32| (striped.stripe_of(id) == first) == same).unwrap();
    [0, find(true), find(false)]
}

async fn is_taken(request: lock_core::LockRequest) -> bool {
    request.try_acquire().await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn ids_of_one_stripe_exclude_each_other() {
    let locks = LockManager::for_tests();
    let users = locks.striped("users", 8);
    let [one, same, other] = ids(&users);
    let guard = users.lock(one).await.unwrap();
    let stripe = users.stripe_of(one);
    assert_eq!((guard.stripe(), guard.key().as_str()), (Some(stripe), format!("users#{stripe}").as_str()));
    assert!(is_taken(users.lock(same)).await);
    assert!(!is_taken(users.lock(other)).await);
    assert!(is_taken(users.all()).await);
    // The same name, spelled again, means the same locks.
    assert!(is_taken(locks.striped("users", 8).lock(same)).await);
    guard.release().await.unwrap();
    let all = users.all().await.unwrap();
    assert_eq!(all.keys().map(|key| key.stripe().unwrap()).collect::<HashSet<_>>(), (0..8).collect());
    assert!(is_taken(users.lock(other)).await);
    drop(all);
    assert_eq!(locks.lock("users#x").await.unwrap().stripe(), None);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn no_value_of_a_key_is_taken_for_a_stripe() {
    let locks = LockManager::for_tests();
    let stock = |id: &str| KeyBuilder::new("stock:<id>").text("stock:").segment("id", id).finish().unwrap();
    let all = locks.striped(stock("42"), 8).all().await.unwrap();
    for stripe in 0..8 {
        assert!(is_taken(locks.lock(format!("stock:42#{stripe}"))).await, "they lie there");
        for value in [format!("42#{stripe}"), format!("42%23{stripe}")] {
            assert!(!is_taken(locks.lock(stock(&value))).await, "{value}");
        }
    }
    all.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn two_ids_of_one_stripe_in_one_task_are_refused_and_together_they_are_one_lock() {
    let locks = LockManager::for_tests();
    let users = locks.striped("users", 8);
    let [one, same, other] = ids(&users);
    let inner = users.lock(one).run(async |_| users.lock(same).await.map(drop)).await.unwrap_err();
    assert_eq!(inner.kind(), LockErrorKind::WouldDeadlock);
    assert!(inner.to_string().contains("lock_all"), "{inner}");
    let outcome: Result<(), LockError> =
        users.lock(one).run(async |_| users.lock(same).reentrant().await.map(drop)).await;
    outcome.unwrap();
    let guard = users.lock_all([one, other, same]).await.unwrap();
    assert_eq!(guard.keys().count(), 2);
    drop(guard);
    // Crossed pairs of ids, which no order of the ids themselves would save.
    let pair = |a: u32, b: u32| {
        let users = users.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                let guard = users.lock_all([a, b]).await.unwrap();
                tokio::time::sleep(SECOND / 10).await;
                guard.release().await.unwrap();
            }
        })
    };
    let (ahead, back) = tokio::join!(pair(one, other), pair(other, same));
    ahead.and(back).unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn two_numbers_for_one_name_are_refused() {
    let locks = LockManager::for_tests();
    let eight = locks.striped("users", 8);
    let error = locks.striped("users", 16).lock(1).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("8 stripes") && error.to_string().contains("formerly(8)"), "{error}");
    assert!(locks.striped("others", 16).lock(1).await.is_ok());
    assert!(eight.lock(1).await.is_ok());
    for count in [0, 4097] {
        let error = locks.striped("many", count).any().await.unwrap_err();
        assert!(error.to_string().contains("between 1 and 4096"), "{error}");
    }
    assert!(locks.striped("", 4).lock(1).await.unwrap_err().kind() == LockErrorKind::InvalidKey);
}

/// Two versions of a service side by side: each is a manager of its own, as each is a process of its own.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_deploy_with_formerly_excludes_the_version_before_and_the_one_after() {
    let store = lock_core::MemoryStore::new();
    let manager = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    let (before, between, after) = (manager(), manager(), manager());
    let versions = [before.striped("users", 8), between.striped("users", 16).formerly(8), after.striped("users", 16)];
    for id in 0..200 {
        let [before, between, after] = versions.each_ref().map(|users| users.lock(id));
        let guard = between.await.unwrap();
        assert_eq!(guard.stripe(), Some(versions[1].stripe_of(id)), "of {:?}", guard.keys().collect::<Vec<_>>());
        assert!(is_taken(before).await && is_taken(after).await, "{id}");
        guard.release().await.unwrap();
        for version in [&versions[0], &versions[2]] {
            let guard = version.lock(id).await.unwrap();
            assert!(is_taken(versions[1].lock(id)).await, "{id}");
            guard.release().await.unwrap();
        }
    }
    let guard = versions[1].all().await.unwrap();
    assert!(is_taken(versions[0].lock(1)).await);
    assert_eq!(guard.keys().count(), 16);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn any_takes_a_free_one_and_waits_only_if_there_is_none() {
    let locks = LockManager::for_tests();
    let stock = locks.striped("stock", 4);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(stock.any().without_waiting().await.unwrap());
    }
    let left = (0..4).find(|stripe| guards.iter().all(|guard| guard.stripe() != Some(*stripe))).unwrap();
    // One of them is free, but left out.
    assert!(stock.any().except(&[left]).try_acquire().await.unwrap().is_none());
    let last = stock.any().except(&HashSet::from([(left + 1) % 4])).try_acquire().await.unwrap().unwrap();
    assert_eq!(last.stripe(), Some(left));
    let error = stock.any().without_waiting().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Busy);
    assert!(error.to_string().contains("\"stock\""), "the error names what is taken: {error}");
    let error = stock.any().with_wait(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let error = stock.any().except(&[0, 1, 2, 3]).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(error.to_string().contains("except()"), "{error}");
    drop((guards, last));
    let used: Result<Option<u32>, LockError> = stock.any().run(async |guard| Ok(guard.stripe())).await;
    assert!(used.unwrap().is_some());
    assert!(locks.all_free());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn who_waits_for_any_gets_whichever_is_given_back() {
    let locks = LockManager::for_tests();
    let stock = locks.striped("stock", 4);
    for given_back in 0..4_u32 {
        let mut guards = Vec::new();
        for _ in 0..4 {
            guards.push(stock.any().await.unwrap());
        }
        let waiting = {
            let stock = stock.clone();
            tokio::spawn(async move { stock.any().with_wait(10 * SECOND).await })
        };
        tokio::time::sleep(SECOND / 2).await;
        // Three times of four it is not the one that is queued for.
        guards.swap_remove(given_back as usize).release().await.unwrap();
        let since = tokio::time::Instant::now();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(since.elapsed() <= 2 * SECOND, "{:?}", since.elapsed());
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_task_is_never_given_the_stripe_that_it_holds() {
    let locks = LockManager::for_tests();
    let stock = locks.striped("stock", 2);
    let outcome: Result<(), LockError> = stock
        .any()
        .run(async |outer| {
            stock
                .any()
                .run(async |inner| {
                    assert_ne!(outer.stripe(), inner.stripe());
                    let error = stock.any().await.unwrap_err();
                    assert_eq!(error.kind(), LockErrorKind::WouldDeadlock);
                    Ok(())
                })
                .await
        })
        .await;
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_dropped_any_leaves_nothing() {
    let locks = LockManager::for_tests();
    let events = EventLog::default();
    locks.observe(events.clone());
    let stock = locks.striped("stock", 2);
    let guards = (stock.any().await.unwrap(), stock.any().await.unwrap());
    let waited = tokio::time::timeout(5 * SECOND, stock.any().with_wait(60 * SECOND).acquire()).await;
    assert!(waited.is_err());
    drop(guards);
    tokio::time::sleep(SECOND).await;
    assert!(locks.all_free());
    events.assert_complete();
}

#[test]
#[limit]
fn synchronous_code_takes_any_too() {
    let locks = LockManager::in_memory();
    let stock = locks.striped("stock", 2);
    let guards = [stock.any().acquire_blocking().unwrap(), stock.any().acquire_blocking().unwrap()];
    assert_ne!(guards[0].stripe(), guards[1].stripe());
    let error = stock.any().without_waiting().acquire_blocking().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Busy);
    let freed = std::thread::spawn({
        let stock = stock.clone();
        move || stock.any().with_wait(60 * SECOND).acquire_blocking().unwrap().release_blocking().unwrap()
    });
    for guard in guards {
        guard.release_blocking().unwrap();
    }
    freed.join().unwrap();
}
