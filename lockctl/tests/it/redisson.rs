//! Locks in Redisson's layout, with a holder in Java.

use std::time::Duration;

use lock_core::LockManager;
use lock_redisson as _;
use lock_testing::{RedisServer, Reply, limit};

use crate::program::lockctl_at;

/// A thread of a client of Redisson.
const JAVA: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:42";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_holder_in_java_is_named_and_its_lock_without_an_end_is_taken_back() {
    let server = RedisServer::start();
    let url = format!("{}?layout=redisson", server.url());
    let ctl = |arguments: &[&str]| lockctl_at(&url, arguments);
    assert_eq!(server.command(&["HSET", "order:1", JAVA, "1"]), Reply::Int(1));
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("order:2").with_site("shop::charge").with_ttl(Duration::from_secs(60)).await.unwrap();
    let list = ctl(&["list"]);
    list.assert_code(0);
    for part in ["order:1", "Redisson", "pid 42 on 8743c9c0-0795-4907-87fd-6c719a6b4586", "order:2", "shop::charge"] {
        assert!(list.stdout.contains(part), "{part} in {list:?}");
    }
    let why = ctl(&["why", "order:1"]);
    why.assert_code(0);
    assert!(why.stdout.contains(&format!("--expect-value='{JAVA}'")), "{why:?}");
    let release = |value: &str| ctl(&["release", "order:1", "--expect-value", value, "--reason", "its host is gone"]);
    release(&JAVA.replace(":42", ":43")).assert_code(1);
    release(JAVA).assert_code(0);
    assert_eq!(server.command(&["EXISTS", "order:1"]), Reply::Int(0));
    ctl(&["topology"]).assert_code(0);
    let other = lockctl_at(&format!("{}?layout=other", server.url()), &["list"]);
    assert!(other.stderr.contains("layout=redisson"), "{other:?}");
    drop(guard);
}
