//! How many of the grants each process gets, where all want permits all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::testing::limit;
use lock_core::{LockManager, MemoryStore};
use tokio::time::sleep;

use super::network::Network;
use super::{MS, SECOND};

const PROCESSES: u64 = 4;
const TASKS: usize = 16;

/// Returns how many grants each process gets within a time, if all of them are so many times slower.
fn grants(slower: u32, permits: u32, within: Duration) -> Vec<usize> {
    fastrand::seed(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::new());
        let process = |number| {
            let mut network = Network::new(Arc::clone(&store), number, 0);
            network.slower = slower;
            let locks = LockManager::builder_shared(Arc::new(network)).with_wait(3600 * SECOND);
            let locks = locks.drive_on_current_runtime().build().unwrap();
            let count = Arc::new(AtomicUsize::new(0));
            for _ in 0..TASKS {
                tokio::spawn(work(locks.clone(), permits, Arc::clone(&count)));
            }
            count
        };
        let counts: Vec<_> = (0..PROCESSES).map(process).collect();
        sleep(within).await;
        counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    })
}

async fn work(locks: LockManager, permits: u32, count: Arc<AtomicUsize>) {
    loop {
        let guard = locks.semaphore("k", permits).await.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
        sleep(MS).await;
        guard.release().await.unwrap();
    }
}

/// Processes that want the same get the same, however long a grant and a claim are on their way.
#[test]
#[limit(300)]
fn no_process_gets_less_of_the_permits_because_all_of_them_are_slow() {
    for (slower, permits) in [(4, 4), (8, 4), (8, 16)] {
        let counts = grants(slower, permits, 2 * SECOND);
        let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
        println!("figure: {permits} permits, {slower} times slower: {counts:?}");
        assert!(least * 10 >= most * 9, "{permits} permits, {slower} times slower: {counts:?}");
    }
}
