//! The locks of a quorum, as its members have them.

use std::time::Duration;

use lock_core::testing::{RedisServer, Reply, limit};
use lock_core::{LockGuard, LockManager};

use crate::program::{lockctl_at, watch_at};

/// Three servers, a quorum of them that has begun, and a lock.
pub(crate) async fn quorum() -> ([RedisServer; 3], String, LockManager, LockGuard) {
    let servers = [(); 3].map(|()| RedisServer::start());
    let url = format!("redlock://{}", servers.each_ref().map(node).join(","));
    lockctl_at(&url, &["quorum", "init"]).assert_code(0);
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("lock:job").with_site("shop::report").with_ttl(Duration::from_secs(60)).await.unwrap();
    (servers, url, locks, guard)
}

pub(crate) fn node(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// Takes a lock at one member, as a client of RedLock does that gets no further.
pub(crate) fn take_part(server: &RedisServer) {
    let taken = server.command(&["SET", "lock:part", "nonce", "PX", "600000"]);
    assert_eq!(taken, Reply::Text("OK".to_owned()));
}

pub(crate) fn row<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key} in {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_list_says_what_a_majority_holds_and_what_is_unknown() {
    let (mut servers, url, _locks, guard) = quorum().await;
    let ended = lockctl_at(&url, &["list"]);
    ended.assert_code(0);
    for part in ["held", "3 of 3", "shop::report", &format!("pid {} on ", std::process::id())] {
        assert!(row(&ended.stdout, "lock:job").contains(part), "{part}: {ended:?}");
    }
    assert!(ended.stdout.ends_with("1 lock is held by 2 or more of 3 members\n"), "{ended:?}");

    take_part(&servers[1]);
    let ended = lockctl_at(&url, &["list", "--prefix", "lock:"]);
    ended.assert_code(0);
    assert!(row(&ended.stdout, "lock:part").contains("minority  1 of 3"), "{ended:?}");
    assert!(
        ended.stdout.contains("; 1 without a majority: an acquire on its way, or what one left behind"),
        "{ended:?}"
    );
    let json = lockctl_at(&url, &["list", "--prefix", "lock:", "--json"]).json();
    assert_eq!((&json["majority"], &json["locks"][0]["state"]), (&2.into(), &"held".into()), "{json}");
    assert_eq!(json["locks"][0]["members"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(json["locks"][1]["state"], "minority", "{json}");
    assert_eq!(json["locks"][1]["members"], serde_json::json!([node(&servers[1])]), "{json}");
    assert!(json["locks"][0]["ttl_left_seconds"].as_f64().unwrap() > 20.0, "{json}");

    // A member that does not answer is named at once, and may have the missing claim.
    servers[2].pause();
    let ended = lockctl_at(&url, &["list", "--prefix", "lock:"]);
    ended.assert_code(0);
    assert!(row(&ended.stdout, "lock:job").contains("2 of 3"), "{ended:?}");
    assert!(row(&ended.stdout, "lock:part").contains("unknown"), "{ended:?}");
    assert!(ended.stdout.contains(&format!("{} gave no answer: ", node(&servers[2]))), "{ended:?}");
    servers[2].resume();
    servers[1].kill();
    servers[2].kill();
    let ended = lockctl_at(&url, &["list"]);
    ended.assert_code(3);
    assert!(ended.stdout.contains("without a majority no lock is granted"), "{ended:?}");
    let json = lockctl_at(&url, &["list", "--json"]).json();
    assert_eq!(
        (&json["locks"][0]["state"], json["members"][2]["error"].is_string()),
        (&"unknown".into(), true),
        "{json}"
    );
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lock_is_shown_at_each_member_with_the_command_that_forces_it() {
    let (mut servers, url, _locks, guard) = quorum().await;
    let ended = lockctl_at(&url, &["show", "lock:job"]);
    ended.assert_code(0);
    let owner = lockctl_at(&url, &["show", "lock:job", "--json"]).json()["owner"].as_str().unwrap().to_owned();
    for server in &servers {
        let row = row(&ended.stdout, &node(server));
        assert!(row.contains("held") && row.contains("shop::report") && row.contains(&owner), "{ended:?}");
    }
    assert!(ended.stdout.contains("lock:job is held: 3 of 3 members have it, and 2 must\n"), "{ended:?}");
    assert!(ended.stdout.contains(&format!("lockctl release 'lock:job' --expect-owner {owner}")), "{ended:?}");

    take_part(&servers[0]);
    let ended = lockctl_at(&url, &["show", "lock:part"]);
    ended.assert_code(1);
    assert!(row(&ended.stdout, &node(&servers[0])).contains("foreign"), "{ended:?}");
    assert!(row(&ended.stdout, &node(&servers[1])).contains("free"), "{ended:?}");
    assert!(ended.stdout.contains("lock:part is held by nobody: 1 of 3 members have it, and 2 must"), "{ended:?}");
    let ended = lockctl_at(&url, &["show", "lock:free"]);
    ended.assert_code(1);
    assert!(ended.stdout.ends_with("lock:free is free\n"), "{ended:?}");

    servers[2].kill();
    let ended = lockctl_at(&url, &["show", "lock:job"]);
    ended.assert_code(0);
    assert!(row(&ended.stdout, &node(&servers[2])).contains("no answer"), "{ended:?}");
    assert!(ended.stdout.contains("2 of 3 members have it, and 2 must; renewals repair the others"), "{ended:?}");
    servers[1].kill();
    for key in ["lock:job", "lock:free"] {
        let ended = lockctl_at(&url, &["show", key]);
        ended.assert_code(3);
        assert!(ended.stdout.contains(&format!("it is unknown whether {key} is ")), "{ended:?}");
        let json = lockctl_at(&url, &["show", key, "--json"]).json();
        assert_eq!((&json["state"], &json["members"][2]["state"]), (&"unknown".into(), &"no_answer".into()), "{json}");
    }
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_quorum_is_watched_while_a_member_dies() {
    let (mut servers, url, _locks, guard) = quorum().await;
    let (mut list, mut one) = (watch_at(&url, &["watch"]), watch_at(&url, &["watch", "lock:job", "--json"]));
    list.wait_for("3 of 3");
    one.wait_for("\"state\":\"held\"");
    servers[1].kill();
    list.wait_for("2 of 3");
    list.wait_for(&format!("{} gave no answer", node(&servers[1])));
    guard.release().await.unwrap();
    one.wait_for("\"state\":\"free\"");
    one.interrupt().assert_code(0);
    list.interrupt().assert_code(0);
}
