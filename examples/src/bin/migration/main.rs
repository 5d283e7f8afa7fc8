//! Moves from a lock of another library to this one, without a gap in the exclusion.
//!
//! ```sh
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin migration
//! ```
//!
//! The old lock is a hash, as in Redisson. The same name cannot hold a string too, so the old and the new lock
//! cannot exclude each other there. Therefore every process takes *both* for a while: first the old one, then
//! the new one, always in this order. The fleet goes through three mixtures. None of them may contain *old*
//! beside *new*:
//!
//! 1. old and both: the first processes are deployed;
//! 2. both and both;
//! 3. both and new: the last old lock goes.
//!
//! Two workers increment one number in Redis by reading it and writing it back. If both are inside at once, a step is
//! lost. A library that stores a plain string does not need these steps: see `docs/migrating.md`.

mod rlock;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use lock_core::{LockError, LockManager};
use redis::aio::MultiplexedConnection;

use crate::rlock::{LEASE, RLock, RLockError};

/// How many times each worker counts in each mixture.
const ROUNDS: u64 = 20;
/// The old lock and the new one, under different names.
const OLD: &str = "migration:stock";
const NEW: &str = "lock:migration:stock";
const COUNTER: &str = "migration:counter";
/// How long each worker waits for a lock.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Locks {
    Old,
    Both,
    New,
}

#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Old(#[from] RLockError),
}

/// Reads the number and writes the next one. This is wrong if another worker is inside.
async fn count_up(mut redis: MultiplexedConnection) -> Result<(), WorkError> {
    let number: Option<u64> = redis::cmd("GET").arg(COUNTER).query_async(&mut redis).await?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    redis::cmd("SET").arg(COUNTER).arg(number.unwrap_or(0) + 1).exec_async(&mut redis).await?;
    Ok(())
}

async fn work(held: Locks, locks: LockManager, redis: MultiplexedConnection) -> Result<(), WorkError> {
    let old = RLock::new(redis.clone(), OLD, LEASE);
    for _ in 0..ROUNDS {
        let inner = count_up(redis.clone());
        let under_new = |inner| locks.lock(NEW).with_wait(WAIT).run(async move |_| inner.await);
        match held {
            Locks::New => under_new(inner).await?,
            // In the reverse order: the new lock is released before the old one.
            Locks::Both => old.run(WAIT, under_new(inner)).await??,
            Locks::Old => old.run(WAIT, inner).await??,
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Ok(url) = env::var("LOCK_URL") else {
        eprintln!("set LOCK_URL to a Redis server: both kinds of lock live there");
        return Ok(ExitCode::from(2));
    };
    let redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    // Two managers stand for two processes.
    let (one, two) = (LockManager::connect(&url).await?, LockManager::connect(&url).await?);
    let mut lost = 0;
    for (step, first, second) in [
        ("old and both", Locks::Old, Locks::Both),
        ("both and both", Locks::Both, Locks::Both),
        ("both and new", Locks::Both, Locks::New),
    ] {
        redis::cmd("DEL").arg(COUNTER).exec_async(&mut redis.clone()).await?;
        let work = async {
            tokio::try_join!(work(first, one.clone(), redis.clone()), work(second, two.clone(), redis.clone()))
                .map(drop)
        };
        let within = Duration::from_secs(5);
        tokio::select! {
            done = work => done?,
            // On SIGTERM or Ctrl-C, work under a lock is finished first.
            _ = async { tokio::join!(one.shutdown_on_signal(within), two.shutdown_on_signal(within)) } => {
                return Err("stopped before the end".into());
            }
        }
        let counted: u64 = redis::cmd("GETDEL").arg(COUNTER).query_async(&mut redis.clone()).await?;
        println!("{step}: counted to {counted} of {}", 2 * ROUNDS);
        lost += 2 * ROUNDS - counted;
    }
    one.shutdown(Duration::from_secs(5)).await;
    two.shutdown(Duration::from_secs(5)).await;
    println!("steps lost: {lost}");
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
