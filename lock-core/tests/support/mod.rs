//! Shared by the tests of whole managers on real servers.

mod authority;
mod listening;
#[cfg(target_os = "linux")]
mod movable;
mod resource;
mod worker;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use lock_core::{LockGuard, LockManager, LockRequest, LossReason, RedisStore, Renew};
use lock_testing::{EventLog, RedisServer, Reply};

pub(crate) use authority::Authority;
pub(crate) use listening::listening;
#[cfg(target_os = "linux")]
pub(crate) use movable::Movable;
pub(crate) use resource::Resource;
pub(crate) use worker::{Scratch, Worker};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A lease that no stall of the machine outlasts. A test that waits for its end fails.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// How long a test waits for something promised without a bound, or with a bound that is not the
/// subject of the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A manager whose leases and waits outlast every stall of the machine.
pub(crate) fn locks_at(url: &str) -> LockManager {
    LockManager::builder(RedisStore::new(url).unwrap()).with_ttl(30 * SECOND).with_wait(PATIENCE).build().unwrap()
}

/// Asks for a lock that is renewed all the time although its lease is long: a stall does not lose it,
/// and a test soon sees whether the watchdog is alive.
pub(crate) fn watched(locks: &LockManager, key: &str) -> LockRequest {
    locks.lock(key).with_ttl(60 * SECOND).with_renew(Renew::Every(200 * MS))
}

/// Waits until a number of leases have been renewed from now on.
pub(crate) async fn renewals(events: &EventLog, count: usize) {
    let before = events.count("Renewed");
    eventually("leases are renewed", || events.count("Renewed") >= before + count).await;
}

pub(crate) fn locks(server: &RedisServer) -> LockManager {
    locks_at(&server.url())
}

/// Waits until every acquire has ended, whose event comes a moment after its effect, and checks the events.
pub(crate) async fn all_told(events: &EventLog) {
    eventually("every acquire ends", || events.open() == 0).await;
    events.assert_complete();
}

/// A manager that the server knows already, so that the next command is a script it has seen.
pub(crate) async fn warm(url: &str) -> LockManager {
    let (locks, events) = (locks_at(url), EventLog::default());
    locks.observe(events.clone());
    let warm = || locks.lock("warm").acquire();
    let guard = warm().await.unwrap();
    guard.extend(30 * SECOND).await.unwrap();
    guard.release().await.unwrap();
    // Released by the keeper, on its own connection.
    drop(warm().await.unwrap());
    warm().await.unwrap().release().await.unwrap();
    // So that later observers see every acquire from its beginning.
    all_told(&events).await;
    locks
}

pub(crate) async fn take(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).await.unwrap_or_else(|error| panic!("{key} was to be granted: {error}"))
}

/// Waits until something holds, however long that takes a busy machine. Returns how long it was.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(2 * MS).await;
    }
    start.elapsed()
}

/// Waits until a lock is lost, and says why.
pub(crate) async fn lost(guard: &LockGuard) -> LossReason {
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {} is lost", guard.key()))
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

/// Returns how many keys expired instead of being freed.
pub(crate) fn expired(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]);
    let line = stats.text().lines().find_map(|line| line.strip_prefix("expired_keys:"));
    line.unwrap().trim().parse().unwrap()
}

pub(crate) fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

/// Returns every key of a server but the clock, from which all tokens come.
pub(crate) fn locked_keys(server: &RedisServer) -> Vec<String> {
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
    keys.iter().map(|key| key.text().to_owned()).filter(|key| !key.starts_with("distributed-lock:clock")).collect()
}

/// Waits until a server has had no keys but the clock for a while, so that what was still on its
/// way, and is undone, has arrived. Returns how long that was.
pub(crate) async fn nothing_is_left(server: &RedisServer) -> Duration {
    let mut empty_since = None;
    let gone = || {
        let now = Instant::now();
        if !locked_keys(server).is_empty() {
            empty_since = None;
            return false;
        }
        now - *empty_since.get_or_insert(now) >= 100 * MS
    };
    eventually("nothing is left", gone).await
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

/// Prints a figure, which `--nocapture` shows.
pub(crate) fn figure(what: &str, value: impl std::fmt::Debug) {
    println!("figure: {what}: {value:?}");
}

/// Prints a figure with the bound that is set for it, which `scripts/repeat-scenarios.sh` checks: a test that runs beside
/// others says nothing about time.
#[allow(dead_code, reason = "only the program `topologies` sets bounds")]
pub(crate) fn bounded(what: &str, value: impl std::fmt::Debug, bound: impl std::fmt::Debug) {
    figure(&format!("{what} (bound {bound:?})"), value);
}

/// Polls a future at most this many times, and only while it is woken. Returns its output, if it
/// finished, and how often it was polled.
pub(crate) async fn cut_after<F: Future + ?Sized>(most: usize, mut future: Pin<&mut F>) -> (Option<F::Output>, usize) {
    let mut polls = 0;
    let cut = poll_fn(|cx| {
        if polls == most {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(cx).map(Some)
    });
    // A future that is no longer woken is cut off at that point.
    let output = tokio::time::timeout(20 * MS, cut).await.ok().flatten();
    (output, polls)
}
