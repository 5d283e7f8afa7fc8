//! From the words of an alert to the lock.

use std::time::Duration;

use lock_core::LockManager;
use lock_testing::{RedisServer, limit};

use crate::program::lockctl;

/// An alert names a lock and a call site, and never a key.
#[tokio::test]
#[limit]
async fn the_words_of_an_alert_lead_to_the_lock() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let take = |key: &'static str, name: &'static str, site: &'static str| {
        locks.lock(key).with_label(name).with_site(site).with_ttl(Duration::from_secs(60))
    };
    let _guards = [
        take("order:1", "order:<id>", "shop::charge").acquire().await.unwrap(),
        take("order:2", "order:<id>", "shop::refund").acquire().await.unwrap(),
        take("cart:1", "cart:<id>", "shop::charge").acquire().await.unwrap(),
    ];
    let keys = |arguments: &[&str]| -> Vec<String> {
        let json = lockctl(&server, &[&["list", "--json"], arguments].concat()).json();
        let locks = json["locks"].as_array().unwrap().iter();
        locks.map(|lock| lock["key"].as_str().unwrap().to_owned()).collect()
    };
    let mut orders = keys(&["--lock", "order:<id>"]);
    orders.sort();
    assert_eq!(orders, ["order:1", "order:2"]);
    assert_eq!(keys(&["--lock", "order:<id>", "--site", "shop::refund"]), ["order:2"]);
    assert_eq!(keys(&["--older", "1h"]), [""; 0]);
    assert_eq!(keys(&["--stuck"]), [""; 0], "none is older than three leases");
    assert_eq!(keys(&["--limit", "1"]).len(), 1);
    let cut = lockctl(&server, &["list", "--limit", "1"]);
    assert!(cut.stdout.contains("and 2 more that --limit leaves out"), "{cut:?}");
    let listed = lockctl(&server, &["list", "--json", "--lock", "cart:<id>"]).json();
    assert_eq!(listed["locks"][0]["lock"], "cart:<id>");
    for command in ["why", "show", "waiters"] {
        let ended = lockctl(&server, &[command, "cart:<id>"]);
        ended.assert_code(0);
        assert!(ended.stdout.contains("shop::charge") && ended.stderr.contains("this is cart:1"), "{ended:?}");
    }
    // A key comes before a name, and what is neither is free.
    lockctl(&server, &["why", "order:1"]).assert_code(0);
    lockctl(&server, &["why", "nothing:<id>"]).assert_code(1);
}

/// The state agrees with what the call site says.
#[tokio::test]
#[limit]
async fn a_command_that_is_older_than_it_said_is_stuck() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let site = |seconds: u32| format!("lockctl run backup.sh (stuck after {seconds}s)");
    let take =
        |key: &'static str, seconds| locks.lock(key).with_site(site(seconds).leak()).with_ttl(Duration::from_secs(60));
    let _old = take("old", 1).acquire().await.unwrap();
    let _young = take("young", 3600).acquire().await.unwrap();
    let row = |key: &str| {
        let listed = lockctl(&server, &["list"]).stdout;
        listed.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned()
    };
    while !row("old").contains("  stuck ") {}
    assert!(row("young").contains("  held "), "{}", row("young"));
    let stuck = lockctl(&server, &["list", "--stuck", "--json"]).json();
    assert_eq!((stuck["locks"].as_array().unwrap().len(), &stuck["locks"][0]["key"]), (1, &"old".into()));
}
