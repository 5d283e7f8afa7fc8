//! What the tests of whole managers on real servers share.

mod resource;
mod worker;

use std::time::{Duration, Instant};

use lock_core::testing::{RedisServer, Reply};
use lock_core::{LockGuard, LockManager, RedisStore};

pub(crate) use resource::Resource;
pub(crate) use worker::{Scratch, Worker};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What a noisy machine may add to any time before a test calls it late.
pub(crate) const SLACK: Duration = Duration::from_millis(600);

/// A manager with a lease of one second and patient waits.
pub(crate) fn locks_at(url: &str) -> LockManager {
    LockManager::builder(RedisStore::new(url).unwrap()).ttl(SECOND).wait(10 * SECOND).build().unwrap()
}

pub(crate) fn locks(server: &RedisServer) -> LockManager {
    locks_at(&server.url())
}

/// A manager that the server knows already, so that the next command is a script it has seen.
pub(crate) async fn warm(url: &str) -> LockManager {
    let locks = locks_at(url);
    let warm = || locks.lock("warm").with_ttl(30 * SECOND).acquire();
    let guard = warm().await.unwrap();
    guard.extend(30 * SECOND).await.unwrap();
    guard.release().await.unwrap();
    // By the keeper, on its own connection.
    drop(warm().await.unwrap());
    warm().await.unwrap().release().await.unwrap();
    locks
}

pub(crate) async fn take(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).await.unwrap_or_else(|error| panic!("{key} was to be granted: {error}"))
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(2 * MS).await;
    }
    start.elapsed()
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

pub(crate) fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

/// Returns the locks on a server: every key but the fences, which stay for a day.
pub(crate) fn locked_keys(server: &RedisServer) -> Vec<String> {
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
    keys.iter().map(|key| key.text().to_owned()).filter(|key| !key.ends_with("@fence")).collect()
}

/// Draws a seed, or takes the one of an earlier failure from `LOCK_TEST_SEED`. A test that fails
/// prints it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("LOCK_TEST_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("LOCK_TEST_SEED: {error}")),
        Err(_) => fastrand::u64(..),
    };
    println!("to repeat this: LOCK_TEST_SEED={seed}");
    seed
}

/// Publishes a figure, for those who run the tests with --nocapture.
pub(crate) fn figure(what: &str, value: impl std::fmt::Debug) {
    println!("figure: {what}: {value:?}");
}
