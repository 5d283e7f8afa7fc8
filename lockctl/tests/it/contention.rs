//! Waits that have ended, from live views.

use std::time::Duration;

use lock_core::LockManager;
use lock_testing::{RedisServer, limit};
use serde_json::Value;

use crate::program::lockctl;
use crate::why::{assert_says, observed};

const KEY: &str = "lock:user:42";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn who_blocked_whom_is_told_when_it_is_over() {
    let server = RedisServer::start();
    let shop = observed(&server.url()).await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    other.observe(shop.metrics.observer());
    let guard = shop.locks.lock(KEY).with_site("shop::charge").acquire().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    let request = other.lock(KEY).with_site("api::pay").with_wait(Duration::from_secs(120));
    waiting.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    let waits = || {
        let page: Value = serde_json::from_str(&shop.metrics.locks_json()).unwrap();
        let rows = page["locks"].as_array().unwrap().clone();
        // Only a waiter that has seen the holder can tell who blocked it.
        let has_seen = |row: &Value| row["waits_for"]["site"] == "shop::charge";
        rows.iter().any(|row| has_seen(row) && row["age_seconds"].as_f64() > Some(0.05))
    };
    while !waits() {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    waiting.join_all().await;
    let view = ["contention", "--live-view", &shop.address];
    let text = lockctl(&server, &view);
    text.assert_code(0);
    assert_says(&text, &[KEY, "api::pay", "shop::charge", "acquired", &format!("pid {} on ", std::process::id())]);
    let json = lockctl(&server, &["contention", "--json", "--live-view", &shop.address]).json();
    assert_eq!((&json["contention"][0]["key"], &json["contention"][0]["waits"]), (&KEY.into(), &1.into()), "{json}");
    let none = lockctl(&server, &["contention", "--prefix", "cart:", "--live-view", &shop.address]);
    assert!(none.stdout.contains("no wait"), "{none:?}");
    // A process that cannot be asked is unknown.
    let gone = lockctl(&server, &["contention", "--live-view", "http://127.0.0.1:1"]);
    gone.assert_code(3);
    assert!(gone.stdout.contains("nothing is known") && gone.stderr.contains("was not read"), "{gone:?}");
}
