//! Many keys that were never used before leave no node behind but the directories of all keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lock_testing::limit;
use tokio::task::JoinSet;

use crate::servers::{Pace, Servers};
use crate::support::{LONG, eventually, locks};

/// How many keys, and how many tasks take them.
const KEYS: u64 = 100_000;
const TASKS: u64 = 64;

/// How many directories there are at most, whatever the keys are.
const DIRECTORIES: u64 = 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(900)]
async fn a_hundred_thousand_new_keys_leave_no_more_than_the_directories() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let locks = locks(&servers.url("/growth"));
    locks.lock("first").await.unwrap().release().await.unwrap();
    let (before, next, begun) = (servers.nodes(), Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (locks, next) = (locks.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= KEYS {
                    break;
                }
                let guard = locks.lock(format!("user:{number}").as_str()).with_wait(2 * LONG).await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    println!("figure: {KEYS} new keys took {:?}", begun.elapsed());
    eventually("no node of a key is left", || servers.nodes() < before + DIRECTORIES).await;
}
