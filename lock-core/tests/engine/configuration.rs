//! Managers from URLs, options and files; namespaces.

use std::time::Duration;

use lock_core::{Durability, LockErrorKind, LockManager, LockOptions, MemoryStore, Renew, Wait};
use lock_testing::limit;

fn busy(error: &lock_core::LockError) -> bool {
    error.kind() == LockErrorKind::Busy
}

#[tokio::test]
#[limit]
async fn one_memory_store_of_a_name_in_a_process() {
    let connect = async |url| LockManager::connect(url).await.unwrap();
    let (one, two, named) = (connect("memory://").await, connect("memory://").await, connect("memory://other").await);
    let private = LockManager::in_memory();
    let guard = one.lock("one-store").await.unwrap();
    assert!(busy(&two.lock("one-store").without_waiting().await.unwrap_err()), "both would hold it");
    for locks in [&named, &private] {
        locks.lock("one-store").without_waiting().await.unwrap().release().await.unwrap();
    }
    assert!(busy(&connect("memory://").await.lock("one-store").without_waiting().await.unwrap_err()));
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn two_prefixes_never_meet() {
    let connect = async |url| LockManager::connect(url).await.unwrap();
    let prod = connect("memory://prefixes?key_prefix=prod:").await;
    let test = connect("memory://prefixes?key_prefix=test:").await;
    let plain = connect("memory://prefixes").await;

    let guard = prod.lock_all(["job", "a-job"]).await.unwrap();
    assert_eq!(guard.keys().map(lock_core::LockKey::as_str).collect::<Vec<_>>(), ["prod:a-job", "prod:job"]);
    for locks in [&test, &plain] {
        locks.lock("job").without_waiting().await.unwrap().release().await.unwrap();
        assert!(locks.holder("job").await.unwrap().is_none());
    }
    assert!(prod.holder("job").await.unwrap().is_some());
    assert!(busy(&plain.lock("prod:job").without_waiting().await.unwrap_err()), "it is exactly that key");
    guard.release().await.unwrap();

    let nested = prod.lock("job").run(async |_| prod.lock("job").await.map(drop)).await.unwrap_err();
    assert_eq!(nested.kind(), LockErrorKind::WouldDeadlock);
    let long = prod.lock("k".repeat(510)).await.unwrap_err();
    assert_eq!(long.kind(), LockErrorKind::InvalidKey, "the prefix counts");

    for prefix in ["prod", "prod:eu:", "{a}:", ":"] {
        let built = LockManager::builder(MemoryStore::new()).key_prefix(prefix).build();
        assert_eq!(built.unwrap_err().kind(), LockErrorKind::Misconfigured, "{prefix}");
        let url = format!("memory://prefixes?key_prefix={prefix}");
        assert_eq!(LockManager::connect(&url).await.unwrap_err().kind(), LockErrorKind::Misconfigured, "{prefix}");
    }
}

#[tokio::test]
#[limit]
async fn a_prefix_is_not_in_the_label_of_metrics() {
    let events = lock_testing::EventLog::default();
    let locks = LockManager::builder(MemoryStore::new()).key_prefix("prod:").observer(events.clone()).build().unwrap();
    let key = lock_core::KeyBuilder::new("user:<id>").text("user:").segment("id", 7).finish();
    let guard = locks.lock(key).await.unwrap();
    assert_eq!(guard.key().as_str(), "prod:user:7");
    assert_eq!(guard.key().label().unwrap().as_str(), "user:<id>");
    guard.release().await.unwrap();
    events.assert_complete();
}

#[tokio::test]
#[limit]
async fn options_are_the_same_words_everywhere() {
    let second = Duration::from_secs(1);
    let options = LockOptions::default()
        .with_ttl(10 * second)
        .with_wait(second)
        .with_renew(Renew::Every(2 * second))
        .with_max_hold(60 * second)
        .with_min_hold(second)
        .with_stuck_after(5 * second)
        .without_handoff()
        .release_in_background()
        .with_durability(Durability::Master);
    let expected = LockOptions::default();
    assert_ne!(options, expected);
    let builder = LockManager::builder(MemoryStore::new());
    let locks = builder.with_ttl(second).with_wait(Wait::Forever).with_min_hold(second).build().unwrap();
    let guard = locks.lock("k").with_ttl(3 * second).with_max_hold(60 * second).await.unwrap();
    assert!(guard.remaining() > 2 * second, "the request's own");
    let locks = LockManager::connect_with("memory://options", options).await.unwrap();
    let guard = locks.lock("k").await.unwrap();
    assert!(guard.remaining() > 9 * second, "{:?}", guard.remaining());
    let wrong = LockManager::connect_with("memory://", LockOptions::default().with_ttl(second / 9)).await;
    assert_eq!(wrong.unwrap_err().kind(), LockErrorKind::Misconfigured);
}

#[tokio::test]
#[limit]
async fn a_url_without_a_store_says_what_to_write() {
    for (url, says) in [
        ("", "has no scheme; write redis://host:6379"),
        ("user%40localhost", "has no scheme; write redis://host:6379"),
        ("localhost:6379", "it has no scheme; write redis://host:6379"),
        ("mysql://localhost", "redis://host:6379 (Redis or Valkey)"),
    ] {
        let error = LockManager::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains(says) && !error.to_string().contains("user"), "{url}: {error}");
    }
}

#[cfg(feature = "serde")]
#[test]
#[limit]
fn options_come_from_a_file() {
    let text = r#"
        ttl = "1m30s"
        wait = "forever"
        renew = "20s"
        max_hold = "1h"
        min_hold = "250ms"
        stuck_after = "2m"
        handoff = false
        release_in_background = true
        durability = "acks=2"
    "#;
    let read: LockOptions = toml::from_str(text).unwrap();
    let expected = LockOptions::default()
        .with_ttl(Duration::from_secs(90))
        .with_wait(Wait::Forever)
        .with_renew(Renew::Every(Duration::from_secs(20)))
        .with_max_hold(Duration::from_secs(3600))
        .with_min_hold(Duration::from_millis(250))
        .with_stuck_after(Duration::from_secs(120))
        .without_handoff()
        .release_in_background()
        .with_durability(Durability::Acks(2));
    assert_eq!(read, expected);
    for options in [expected, LockOptions::default(), LockOptions::default().without_waiting()] {
        let written = toml::to_string(&options).unwrap();
        assert_eq!(toml::from_str::<LockOptions>(&written).unwrap(), options, "{written}");
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LockOptions>(&json).unwrap(), options, "{json}");
    }
    assert_eq!(toml::from_str::<LockOptions>("").unwrap(), LockOptions::default());

    for (text, says) in [
        ("tll = \"10s\"", "unknown field `tll`, expected one of `ttl`"),
        ("ttl = 10", "such as \"10s\""),
        ("ttl = \"10\"", "ttl: \"10\" is not a duration"),
        ("wait = \"never\"", "none or forever"),
        ("ttl = \"10ms\"", "use at least 1s"),
        ("handoff = \"maybe\"", "neither true nor false"),
        ("durability = \"two\"", "write acks=1"),
    ] {
        let error = toml::from_str::<LockOptions>(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[tokio::test]
#[limit]
async fn a_store_of_another_crate_is_named_with_the_line_that_links_it() {
    let error = LockManager::connect("postgres://app:s3cret@db/shop").await.unwrap_err().to_string();
    assert!(error.contains("lock-postgres") && error.contains("use lock_postgres as _;"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}
