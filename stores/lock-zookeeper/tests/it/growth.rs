//! Many keys that were never used before leave no node behind but the directories of all keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lock_core::LockManager;
use lock_testing::{FaultProxy, limit};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::servers::{Pace, Servers};
use crate::support::{LONG, SECOND, eventually, locks};

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

/// How many locks have a waiter. Not all of these find room for their watches.
const WAITERS: u64 = 1500;

/// How many nodes they watch at least. At rest it is about 1,080; on a busy machine, many are between two looks.
const MANY: u64 = 600;

/// A client sends all of its watches again after a reconnection. It cannot end that if they fill more than one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_process_with_many_waiters_keeps_its_session_over_a_reconnection() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let proxy = FaultProxy::start(servers.port(0));
    let holder = locks(&servers.url("/watches?session=60s"));
    let waiter = locks(&format!("zookeeper://127.0.0.1:{}/watches?session=60s", proxy.port()));
    let all = |locks: &LockManager| {
        let request = |number| locks.lock(format!("user:{number}").as_str()).with_wait(2 * LONG).acquire();
        (0..WAITERS).map(request).map(|taken| async { taken.await.unwrap() }).collect::<JoinSet<_>>()
    };
    let guards = all(&holder).join_all().await;
    let before = servers.watches();
    let nodes = servers.nodes();
    let waiting = all(&waiter);
    eventually("all wait", || servers.nodes() >= nodes + WAITERS).await;
    eventually("many watch their own node and the holder's", || servers.watches() > before + MANY).await;
    tokio::time::sleep(2 * SECOND).await;
    println!("figure: {WAITERS} waiters watch {} nodes", servers.watches() - before);
    proxy.refuse(true);
    proxy.kill_connections();
    eventually("the old connection is gone", || servers.watches() <= before).await;
    proxy.refuse(false);
    let other = timeout(LONG, waiter.lock("other").acquire()).await.expect("calls go over the new connection").unwrap();
    eventually("they watch again", || servers.watches() > before + MANY).await;
    drop((guards, other));
    drop(waiting.join_all().await);
    // A process watches two more nodes, for notes to holders and for the base of tokens.
    eventually("no watch of a waiter is left", || servers.watches() <= before + 2).await;
}
