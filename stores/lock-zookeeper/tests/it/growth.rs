//! Many keys that were never used before leave no node behind but the directories of all keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lock_core::LockManager;
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

/// How many locks have a waiter, how many of these watch all that their turn depends on, and how many nodes those watch each.
const WAITERS: u64 = 1100;
const NEXTS: u64 = 1000;
const WATCHED: u64 = 3;

/// A client sends all of its watches again after a reconnection. A message of a megabyte ends the connection, and so every lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn the_watches_of_a_process_stay_below_the_largest_message() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let (holder, waiter) = (locks(&servers.url("/watches?session=60s")), locks(&servers.url("/watches?session=60s")));
    let all = |locks: &LockManager| {
        let request = |number| locks.lock(format!("user:{number}").as_str()).with_wait(2 * LONG).acquire();
        (0..WAITERS).map(request).map(|taken| async { taken.await.unwrap() }).collect::<JoinSet<_>>()
    };
    let guards = all(&holder).join_all().await;
    let before = servers.watches();
    let waiting = all(&waiter);
    // Each waiter watches one more node: the holder's. The base of tokens is one node for all.
    let most = before + WAITERS + NEXTS * (WATCHED - 1) + 1;
    // While they come, some watch for a moment and then no longer.
    eventually("no more than a thousand watch all", || servers.watches() == most).await;
    drop(guards);
    drop(waiting.join_all().await);
    eventually("no watch is left", || servers.watches() <= before).await;
}
