//! Runs `lockctl` as a person and as a script would, on a real Redis.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod cluster;
mod contention;
mod dashboards;
#[cfg(feature = "postgres")]
mod doctor;
mod generated;
mod jobs;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod leases;
mod lookup;
mod members;
#[cfg(unix)]
mod mistakes;
mod names;
#[cfg(target_os = "linux")]
mod once;
#[cfg(any(feature = "kubernetes", feature = "postgres", feature = "zookeeper"))]
mod operator;
mod others;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
mod quorum;
#[cfg(feature = "redisson")]
mod redisson;
#[cfg(target_os = "linux")]
mod run;
mod safety;
mod shared;
mod topology;
mod votes;
mod why;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use lock_testing::{RedisServer, Reply, limit};
use serde_json::Value;

use crate::program::{Ended, lockctl, watch};

/// A lock of a holder that is easy to recognise.
async fn take(server: &RedisServer, key: &str) -> (LockManager, LockGuard) {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock(key).with_site("shop::charge").with_ttl(Duration::from_secs(60)).acquire().await.unwrap();
    (locks, guard)
}

/// The owner as `show` prints it for `release`.
fn shown_owner(server: &RedisServer, key: &str) -> String {
    let shown = lockctl(server, &["show", key, "--json"]).json();
    shown["owner"].as_str().unwrap().to_owned()
}

/// Waits until a process listens to operators: a process that gets no message reports a theft.
fn until_it_listens(server: &RedisServer) {
    let channels = || format!("{:?}", server.command(&["PUBSUB", "CHANNELS", "distributed-lock:inbox:revoked"]));
    while !channels().contains("revoked") {
        std::thread::yield_now();
    }
}

#[tokio::test]
#[limit]
async fn list_shows_what_is_held_and_by_whom() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    server.command(&["SET", "cache:1", "x"]);
    server.command(&["SET", "lock:classic", "nonce"]);
    let ended = lockctl(&server, &["list"]);
    ended.assert_code(0);
    let row = ended.stdout.lines().find(|line| line.starts_with("lock:user:42 ")).unwrap();
    let owner = shown_owner(&server, "lock:user:42");
    for part in ["held", "shop::charge", &format!("pid {} on ", std::process::id()), &format!("{}…", &owner[..4])] {
        assert!(row.contains(part), "{part} in {row}");
    }
    assert!(!ended.stdout.contains(&owner) && !ended.stdout.contains("cache:1"), "{ended:?}");
    assert!(ended.stdout.contains(&format!("1 lock on 127.0.0.1:{}", server.port())), "{ended:?}");
    assert!(lockctl(&server, &["list", "--owners"]).stdout.contains(&owner));

    let json = lockctl(&server, &["list", "--json"]).json();
    let lock = &json["locks"][0];
    assert_eq!(
        (&lock["key"], &lock["state"], &lock["site"]),
        (&"lock:user:42".into(), &"held".into(), &"shop::charge".into())
    );
    assert_eq!(lock["waiters"].as_u64(), Some(0));
    assert_eq!(
        (&lock["owner_prefix"], lock.get("owner"), &json["truncated"]),
        (&owner[..4].into(), None, &false.into())
    );
    assert!(lock["ttl_left_seconds"].as_f64().unwrap() > 5.0 && lock["held_for_seconds"].as_f64().unwrap() < 60.0);
    assert_eq!(lockctl(&server, &["list", "--json", "--owners"]).json()["locks"][0]["owner"], owner);

    // Below a prefix that a person gives, strings of other clients are locks too.
    let ended = lockctl(&server, &["list", "--prefix", "lock:"]);
    let rows: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        rows[1].starts_with("lock:classic ") && rows[1].contains("for ever"),
        "what never ends is first: {ended:?}"
    );
    assert!(rows[3].contains("2 locks") && rows[3].contains("1 of them without an expiry"), "{ended:?}");
    assert_eq!(lockctl(&server, &["list", "--prefix", "nothing:", "--json"]).json()["locks"], Value::Array(vec![]));
    let ended = lockctl(&server, &["list", "--prefix", "nothing:"]);
    assert!(ended.stdout.starts_with("no lock is held on "), "{ended:?}");
}

#[tokio::test]
#[limit]
async fn a_list_that_is_cut_says_so() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 5000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    let ended = lockctl(&server, &["list", "--max-keys", "500"]);
    assert!(ended.stdout.contains("raise --max-keys"), "{ended:?}");
    assert_eq!(lockctl(&server, &["list", "--max-keys", "500", "--json"]).json()["truncated"], true);
}

#[tokio::test]
#[limit]
async fn show_tells_all_of_one_lock_and_how_to_release_it() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:it's").await;
    let ended = lockctl(&server, &["show", "lock:it's"]);
    ended.assert_code(0);
    let owner = shown_owner(&server, "lock:it's");
    assert_eq!(owner.len(), 32);
    for part in ["shop::charge", "known to the holder's process", &owner, "lease left", "held for"] {
        assert!(ended.stdout.contains(part), "{part} in {ended:?}");
    }
    let hint = format!("lockctl release 'lock:it'\\''s' --expect-owner {owner} --reason");
    assert!(ended.stdout.contains(&hint), "{ended:?}");

    let ended = lockctl(&server, &["show", "free"]);
    ended.assert_code(1);
    assert_eq!(ended.stdout, "free is free\n");
    let ended = lockctl(&server, &["show", "free", "--json"]);
    ended.assert_code(1);
    assert_eq!(ended.json(), serde_json::json!({ "key": "free", "state": "free" }));
    server.command(&["HSET", "hash", "a", "b"]);
    let ended = lockctl(&server, &["show", "hash"]);
    // This has nothing to do with reaching the server.
    ended.assert_code(4);
    assert!(ended.stderr.contains("\"hash\" holds a hash, another type than a string"), "{ended:?}");

    // The keys beside a lock are not the lock.
    server.command(&["SET", "shared", &format!("shared{}1|7-0-0|1|h|1|s|", "0".repeat(25)), "PX", "60000"]);
    server.command(&["RPUSH", "{shared}@queue", "x"]);
    let expected = "a".repeat(32);
    for args in [&["waiters", "shared"][..], &["release", "shared", "--expect-owner", &expected, "--reason", "a test"]]
    {
        let ended = lockctl(&server, args);
        ended.assert_code(4);
        assert!(ended.stderr.contains("\"{shared}@queue\" holds a list"), "{ended:?}");
        assert!(ended.stderr.contains("delete that key") && !ended.stderr.contains("another key"), "{ended:?}");
    }
}

#[tokio::test]
#[limit]
async fn waiters_of_a_lock_without_a_queue_are_none() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    let ended = lockctl(&server, &["waiters", "lock:user:42"]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("shop::charge") && ended.stdout.contains("no waiter is"), "{ended:?}");
    let json = lockctl(&server, &["waiters", "lock:user:42", "--json"]).json();
    assert_eq!((&json["holder"]["site"], &json["waiters"]), (&"shop::charge".into(), &Value::Array(vec![])));
    let ended = lockctl(&server, &["waiters", "free"]);
    ended.assert_code(1);
    assert!(ended.stdout.starts_with("free is free\n"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn waiters_are_listed_and_the_first_gets_what_is_released() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    let locks = other.clone();
    waiting.spawn(async move {
        let request = locks.lock("lock:user:42").with_site("shop::refund").with_wait(Duration::from_secs(120));
        request.acquire().await.unwrap()
    });
    let look = || lockctl(&server, &["waiters", "lock:user:42", "--json"]).json();
    // The holder is read before its waiters, so one may come in between.
    let listed = |json: &Value| json["waiters"][0].is_object() && json["holder"]["waiters"] == 1;
    let json = (0..500).map(|_| look()).find(listed).unwrap();
    let waiter = &json["waiters"][0];
    assert_eq!((&waiter["position"], &waiter["site"]), (&1.into(), &"shop::refund".into()));
    assert_eq!(waiter["pid"], std::process::id());
    assert!(waiter["waiting_for_seconds"].as_f64().unwrap() < 30.0 && waiter["confirmed_seconds_ago"].is_f64());
    let ended = lockctl(&server, &["waiters", "lock:user:42"]);
    assert!(ended.stdout.contains("shop::charge") && ended.stdout.contains("shop::refund"), "{ended:?}");
    let list = lockctl(&server, &["list", "--json"]).json();
    assert_eq!(list["locks"][0]["waiters"], 1);
    let owner = shown_owner(&server, "lock:user:42");
    lockctl(&server, &["release", "lock:user:42", "--expect-owner", &owner, "--reason", "x"]).assert_code(0);
    let guard = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(lockctl(&server, &["show", "lock:user:42", "--json"]).json()["site"], "shop::refund");
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn release_takes_the_lock_from_the_owner_that_was_shown() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    let owner = shown_owner(&server, "lock:user:42");
    let reason = "host web-3 is gone";
    let ended = lockctl(&server, &["release", "lock:user:42", "--expect-owner", &owner, "--reason", reason]);
    ended.assert_code(0);
    assert_eq!(server.command(&["EXISTS", "lock:user:42"]), Reply::Int(0));
    assert!(ended.stdout.starts_with("released lock:user:42, held by shop::charge (pid "), "{ended:?}");
    for part in
        ["audit: ", "action=\"release\"", "key=\"lock:user:42\"", "outcome=\"released\"", "actor=\"ana@", reason]
    {
        assert!(ended.stderr.contains(part), "{part} in {ended:?}");
    }
    assert!(!ended.stderr.contains(&owner), "an audit log is read by many: {ended:?}");
}

#[tokio::test]
#[limit]
async fn release_as_json() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    let owner = shown_owner(&server, "lock:user:42");
    let arguments = ["release", "lock:user:42", "--expect-owner", &owner, "--reason", "x", "--json"];
    let json = lockctl(&server, &arguments).json();
    assert_eq!((&json["outcome"], &json["was"]["site"]), (&"released".into(), &"shop::charge".into()));
    let again = lockctl(&server, &arguments);
    again.assert_code(1);
    assert_eq!((&again.json()["outcome"], &again.json()["now"]["state"]), (&"not_held".into(), &"free".into()));
}

#[tokio::test]
#[limit]
async fn release_refuses_every_other_owner() {
    let server = RedisServer::start();
    let (_locks, guard) = take(&server, "lock:user:42").await;
    let wrong = "ab".repeat(16);
    let ended = lockctl(&server, &["release", "lock:user:42", "--expect-owner", &wrong, "--reason", "x"]);
    ended.assert_code(1);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("outcome=\"not_held\""), "{ended:?}");
    assert!(ended.stderr.contains("not held by abab…; now shop::charge holds it"), "{ended:?}");
    guard.ensure_held().unwrap();
    assert_eq!(server.command(&["EXISTS", "lock:user:42"]), Reply::Int(1));

    server.command(&["SET", "lock:classic", "nonce"]);
    let ended = lockctl(&server, &["release", "lock:classic", "--expect-owner", &wrong, "--reason", "x"]);
    ended.assert_code(1);
    assert!(ended.stderr.contains("`lockctl show` says how"), "{ended:?}");
    let ended = lockctl(&server, &["release", "free", "--expect-owner", &wrong, "--reason", "x"]);
    ended.assert_code(1);
    assert!(ended.stderr.contains("it is free"), "{ended:?}");
}

#[tokio::test]
#[limit]
async fn a_holder_is_told_who_took_its_lock_away_and_why() {
    let server = RedisServer::start();
    let (_locks, guard) = take(&server, "lock:user:42").await;
    until_it_listens(&server);
    let owner = shown_owner(&server, "lock:user:42");
    lockctl(&server, &["release", "lock:user:42", "--expect-owner", &owner, "--reason", "x"]).assert_code(0);
    assert_eq!(guard.lost().await, lock_core::LossReason::Revoked);
}

#[test]
#[limit]
fn help_and_mistakes_need_no_store_and_show_no_url_as_required() {
    for url in ["", "nonsense", "redis://127.0.0.1:1"] {
        for help in [
            &["--help"][..],
            &["help", "release"],
            &["run", "--help"],
            &["--version"],
            &["man"],
            &["completions", "zsh"],
        ] {
            program::lockctl_at(url, help).assert_code(0);
        }
        let mistake = program::lockctl_at(url, &["show"]);
        mistake.assert_code(2);
        assert!(mistake.stderr.contains("Usage: lockctl show <KEY>"), "{mistake:?}");
    }
}

#[tokio::test]
#[limit]
async fn watch_goes_on_until_it_is_interrupted() {
    let server = RedisServer::start();
    let (_locks, guard) = take(&server, "lock:user:42").await;
    let mut program = watch(&server, &["watch"]);
    program.wait_for("lock:user:42");
    program.wait_for("1 lock on ");
    program.wait_for("lock:user:42");
    guard.release().await.unwrap();
    program.wait_for("no lock is held on ");
    program.interrupt().assert_code(0);
}

#[tokio::test]
#[limit]
async fn watch_one_lock_as_json_through_an_outage() {
    let mut server = RedisServer::start();
    let (locks, _guard) = take(&server, "lock:user:42").await;
    let mut program = watch(&server, &["watch", "lock:user:42", "--json"]);
    let seen: Value = serde_json::from_str(&program.wait_for("lock:user:42")).unwrap();
    assert_eq!((&seen["site"], &seen["queue"]), (&"shop::charge".into(), &Value::Array(vec![])));
    locks.shutdown(Duration::from_secs(5)).await;
    let seen: Value = serde_json::from_str(&program.wait_for("free")).unwrap();
    assert_eq!(seen["state"], "free");
    server.kill();
    let seen: Value = serde_json::from_str(&program.wait_for("error")).unwrap();
    assert!(seen["error"].is_string());
    server.restart();
    program.wait_for("free");
    program.interrupt().assert_code(0);
}

#[test]
#[limit]
fn the_command_line_explains_itself() {
    let server = RedisServer::start();
    let help = lockctl(&server, &["--help"]);
    help.assert_code(0);
    for part in
        ["list", "show", "waiters", "watch", "release", "Exit codes:", "Clusters:", "LOCK_URL", "prove ownership"]
    {
        assert!(help.stdout.contains(part), "{part} in {help:?}");
    }
    let owner = "ab".repeat(16);
    for wrong in [
        &[][..],
        &["lst"],
        &["show"],
        &["show", ""],
        &["release", "k", "--expect-owner", "5f0e", "--reason", "x"],
        &["release", "k", "--expect-owner", &owner, "--reason", ""],
        &["release", "k", "--expect-owner", &owner],
        &["release", "k", "--expect-owner", &"0".repeat(32), "--reason", "x"],
        &["show", "{k}@queue"],
        &["list", "--url", "http://example"],
        &["release", "k", "--expect-owner", &owner, "--expect-value", "x", "--reason", "x"],
        &["release", "k", "--expect-value", "hex:6", "--reason", "x"],
        &["run", "k"],
        &["run", "k", "--"],
        &["run", "k", "true"],
        &["run", "k", "--ttl", "10", "--", "true"],
        &["run", "k", "--ttl", "10ms", "--", "true"],
        &["run", "k", "--wait", "never", "--", "true"],
        &["run", "k", "--once-for", "", "--", "true"],
        &["run", "k", "--once-for", "v1", "--shared", "--", "true"],
        &["run", "k", "--once-for", "v1", "--min-hold", "1s", "--", "true"],
        &["forget", "k"],
        &["forget", "k", ""],
        &["run", "k", "--url", "memory://", "--", "true"],
    ] {
        let ended: Ended = lockctl(&server, wrong);
        ended.assert_code(2);
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty(), "{wrong:?}: {ended:?}");
    }
}
