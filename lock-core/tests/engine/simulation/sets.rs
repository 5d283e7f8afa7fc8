//! Several keys at once over a network that fails: the one command for all of them, or its answer, may
//! be lost or late, and its caller may give up at any moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockGuard, LockManager, MemoryStore};
use lock_testing::{EventLog, limit};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::network::Network;
use super::{MS, SECOND, seeds};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Of each key: whether a body is inside, and the newest token.
#[derive(Default)]
struct Inside(Mutex<HashMap<String, (bool, u64)>>);

impl Inside {
    fn enter(&self, guard: &LockGuard, seed: u64) {
        for key in guard.keys() {
            let mut inside = self.0.lock().unwrap();
            let (taken, newest) = inside.entry(key.to_string()).or_default();
            let token = guard.token_of(key).unwrap().get();
            assert!(!*taken, "two are inside of {key:?}, LOCK_TEST_SEED={seed}");
            assert!(token > *newest, "{token} after {newest} of {key:?}, LOCK_TEST_SEED={seed}");
            (*taken, *newest) = (true, token);
        }
    }

    fn leave(&self, guard: &LockGuard) {
        for key in guard.keys() {
            self.0.lock().unwrap().get_mut(key.as_str()).unwrap().0 = false;
        }
    }
}

/// Three processes take sets of keys, trying or waiting, with leases that outlast the run, so that a
/// set that is not given back is seen. Returns how many sets were granted.
async fn run(seed: u64) -> usize {
    let (store, inside, mut tasks) = (MemoryStore::new(), Arc::new(Inside::default()), JoinSet::new());
    let (mut networks, mut managers) = (Vec::new(), Vec::new());
    for process in 0..3_u64 {
        let faults = if seed.is_multiple_of(5) { 70 } else { 25 };
        let network = Arc::new(Network::new(Arc::new(store.clone()), seed * 31 + process, faults));
        let log = EventLog::default();
        let locks = LockManager::builder_shared(Arc::clone(&network)).observer(log.clone());
        let locks = locks.drive_on_current_runtime().build().unwrap();
        for task in 0..3 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            let mut random = fastrand::Rng::with_seed(seed * 1_009 + process * 17 + task);
            tasks.spawn(async move {
                let mut granted = 0;
                for _ in 0..8 {
                    sleep(random.u32(0..300) * MS).await;
                    let keys = [(); 3].map(|()| KEYS[random.usize(0..KEYS.len())]);
                    let wait = if random.bool() { Duration::ZERO } else { random.u32(1..4_000) * MS };
                    let request = locks.lock_all(keys).with_ttl(600 * SECOND).with_wait(wait);
                    let patience = if random.u8(0..3) == 0 { random.u32(0..1_500) * MS } else { 600 * SECOND };
                    let Ok(Ok(guard)) = timeout(patience, request.acquire()).await else { continue };
                    granted += 1;
                    inside.enter(&guard, seed);
                    // A grant through the queue is short at first, and may be lost.
                    let _ = timeout(random.u32(0..500) * MS, guard.lost()).await;
                    inside.leave(&guard);
                    if random.bool() { drop(guard) } else { drop(guard.release().await) }
                }
                granted
            });
        }
        networks.push(network);
        managers.push((locks, log));
    }
    sleep(Duration::from_secs(3 + seed % 4)).await;
    networks.iter().for_each(|network| network.heal());
    let granted = tasks.join_all().await.into_iter().sum();
    // Commands still on their way arrive within ten seconds, and releases are repeated after that.
    sleep(60 * SECOND).await;
    assert_eq!(store.len(), 0, "keys or entries left, LOCK_TEST_SEED={seed}");
    for (_, log) in managers {
        log.assert_complete();
    }
    granted
}

#[test]
#[limit(300)]
fn sets_exclude_each_other_and_leave_nothing() {
    let mut granted = 0;
    for seed in seeds() {
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        granted += runtime.block_on(run(seed));
    }
    println!("figure: simulated: {granted} sets of keys granted");
}
