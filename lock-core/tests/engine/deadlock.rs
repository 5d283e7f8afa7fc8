//! Tasks that wait for each other are found, exactly one gives way, and none for nothing.

mod guards;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{
    LockBackend, LockError, LockErrorKind, LockEvent, LockKey, LockManager, LockObserver, LockRequest, MemoryStore,
    Notice, Wait,
};
use lock_store::{Blocked, BlockedNotes};
use lock_testing::limit;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::rings::{Told, assert_one_gave_way, ring};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
#[limit]
async fn a_ring_of_any_size_is_broken_by_one() {
    for count in [2, 3, 8] {
        let (store, told) = (MemoryStore::new(), Told::default());
        // Managers of their own, as processes have.
        let managers: Vec<LockManager> = (0..count)
            .map(|_| {
                let built = LockManager::builder(store.clone()).drive_on_current_runtime();
                built.observer(told.clone()).build().unwrap()
            })
            .collect();
        let started = Instant::now();
        let ends = ring(&managers).await;
        assert_one_gave_way(&ends, &told);
        assert!(started.elapsed() < 8 * SECOND, "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn callers_of_one_process_that_wait_for_each_other_are_found_too() {
    let (locks, told) = (LockManager::for_tests(), Told::default());
    locks.observe(told.clone());
    let managers = vec![locks.manager(); 3];
    // Another caller queues in this process, so that no member of the cycle asks the store for that lock.
    let patient = locks.manager();
    let bystander = tokio::spawn(async move {
        sleep(50 * MS).await;
        patient.lock("ring:1").with_wait(Wait::Forever).await.map(drop)
    });
    let ends = ring(&managers).await;
    assert_one_gave_way(&ends, &told);
    bystander.await.unwrap().unwrap();
    sleep(SECOND).await;
    assert!(locks.all_free());
}

#[test]
#[limit]
fn threads_that_wait_for_each_other_are_found_too() {
    let locks = LockManager::in_memory();
    let job = |first: &'static str, second: &'static str| {
        let locks = locks.clone();
        std::thread::spawn(move || {
            // A body that runs in this thread, under a lock that it knows.
            locks.lock(first).at_most_every(SECOND).retry_failed().run_blocking(|_| {
                std::thread::sleep(200 * MS);
                let inner = locks.lock(second).with_wait(60 * SECOND).acquire_blocking()?;
                inner.release_blocking()?;
                Err::<(), _>(LockError::unavailable("free the key at once"))
            })
        })
    };
    let ends = [job("a", "b"), job("b", "a")].map(|thread| thread.join().unwrap().unwrap_err().kind());
    let victims = ends.iter().filter(|kind| **kind == LockErrorKind::WouldDeadlock).count();
    assert_eq!(victims, 1, "{ends:?}");
}

/// The holder of the other lock published that it waits, and does not wait any longer. Only its stamp changes between two
/// looks.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_cycle_of_which_one_member_has_not_published_again_is_no_deadlock() {
    let (store, told) = (MemoryStore::new(), Told::default());
    let [locks, other] = [(); 2].map(|()| {
        let manager = LockManager::builder(store.clone()).drive_on_current_runtime();
        manager.observer(told.clone()).build().unwrap()
    });
    let held = other.lock("b").await.unwrap();
    let holder = store.holder(held.key()).await.unwrap().unwrap();
    let waits_for = LockKey::new("a").unwrap();
    let then = Blocked::new(holder.owner.unwrap(), held.token(), u64::MAX / 2, waits_for);
    let key = held.key().clone();
    let publishing = tokio::spawn(async move {
        loop {
            store.set_blocked(&key, Some(&then)).await.unwrap();
            sleep(100 * MS).await;
        }
    });
    let inner = locks.lock("b").with_wait(20 * SECOND);
    let ended: Result<(), LockError> = locks.lock("a").run(async |_| inner.run(async |_| Ok(())).await).await;
    assert_eq!(ended.unwrap_err().kind(), LockErrorKind::Timeout);
    assert!(told.0.lock().unwrap().is_empty());
    publishing.abort();
    held.release().await.unwrap();
}

/// What really is: which task holds what, and what it waits for.
#[derive(Default)]
struct Truth {
    holders: HashMap<String, u32>,
    waits: HashMap<u32, String>,
}

/// Checks each cycle against the truth at the moment at which it is told.
struct Checker(Arc<Mutex<Truth>>, Told);

impl LockObserver for Checker {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        let Notice::Deadlocked { deadlock } = notice else { return };
        // An observer's panic is caught, so the test is told by what is missing.
        let truth = self.0.lock().unwrap();
        let keys: Vec<&str> = deadlock.cycle.iter().map(|member| member.key.as_str()).collect();
        let next = keys.iter().cycle().skip(1);
        let real = keys.iter().zip(next).all(|(key, next)| {
            let holder = truth.holders.get(*key);
            holder.and_then(|holder| truth.waits.get(holder)).is_some_and(|waited| waited == next)
        });
        drop(truth);
        assert!(real, "no such cycle: {deadlock:?}");
        self.1.on_notice(notice);
    }
}

/// One lock after the other inside each other, in any order.
async fn nest(truth: Arc<Mutex<Truth>>, task: u32, requests: Vec<(String, LockRequest)>) -> Result<(), LockError> {
    let mut requests = requests;
    let Some((key, request)) = requests.pop() else {
        sleep(200 * MS).await;
        return Ok(());
    };
    truth.lock().unwrap().waits.insert(task, key.clone());
    let state = Arc::clone(&truth);
    let ended = request
        .run(async |_| {
            {
                let mut truth = state.lock().unwrap();
                truth.waits.remove(&task);
                truth.holders.insert(key.clone(), task);
            }
            sleep(50 * MS).await;
            let ended = Box::pin(nest(Arc::clone(&state), task, requests)).await;
            state.lock().unwrap().holders.remove(&key);
            ended
        })
        .await;
    truth.lock().unwrap().waits.remove(&task);
    ended
}

/// Ten tasks of three processes nest up to three of six locks in any order, and wait as long as it takes. All proceed,
/// and every task that gave way was in a cycle.
#[tokio::test(start_paused = true)]
#[limit(120)]
async fn a_crowd_that_nests_at_random_always_gets_on_and_nobody_gives_way_for_nothing() {
    let seed = std::env::var("LOCK_TEST_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("to repeat this: LOCK_TEST_SEED={seed}");
    let (store, told, truth) = (MemoryStore::new(), Told::default(), Arc::new(Mutex::new(Truth::default())));
    let managers: Vec<LockManager> = (0..3)
        .map(|_| {
            let built = LockManager::builder(store.clone()).drive_on_current_runtime();
            built.observer(Checker(Arc::clone(&truth), told.clone())).build().unwrap()
        })
        .collect();
    let mut tasks = JoinSet::new();
    for task in 0..10_u32 {
        let (locks, truth) = (managers[task as usize % 3].clone(), Arc::clone(&truth));
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(task)));
        tasks.spawn(async move {
            let mut victims = 0;
            for _ in 0..40 {
                let mut keys: Vec<u32> = (0..6).collect();
                random.shuffle(&mut keys);
                keys.truncate(random.usize(1..=3));
                let request = |key: &u32| {
                    let key = format!("k:{key}");
                    (key.clone(), locks.lock(key).with_wait(Wait::Forever))
                };
                match nest(Arc::clone(&truth), task, keys.iter().map(request).collect()).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == LockErrorKind::WouldDeadlock => victims += 1,
                    Err(error) => panic!("{error}"),
                }
                sleep(Duration::from_millis(random.u64(0..300))).await;
            }
            victims
        });
    }
    let mut victims = 0;
    while let Some(ended) = tasks.join_next().await {
        victims += ended.unwrap();
    }
    let told = told.0.lock().unwrap();
    let told_victims = told.iter().filter(|deadlock| deadlock.victim).count();
    println!("{victims} gave way, {} members of cycles were told", told.len());
    assert!(victims > 0, "locks in any order meet");
    assert_eq!(victims, told_victims, "whoever gave way was in a real cycle, and told so");
}

/// In one order nobody waits for each other, however long the wait.
#[tokio::test(start_paused = true)]
#[limit]
async fn long_waits_in_one_order_are_no_deadlock() {
    let (locks, told) = (LockManager::for_tests(), Told::default());
    locks.observe(told.clone());
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (locks, truth) = (locks.manager(), Arc::default());
        tasks.spawn(async move {
            for _ in 0..5 {
                let keys = ["c", "b", "a"].map(|key| (key.to_owned(), locks.lock(key).with_wait(Wait::Forever)));
                nest(Arc::clone(&truth), task, keys.into()).await.unwrap();
                sleep(3 * SECOND).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(told.0.lock().unwrap().len(), 0);
}
