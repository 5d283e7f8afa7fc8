//! Locks that several share, and elections, as `lockctl` shows them.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_testing::{RedisServer, limit};
use serde_json::Value;

use crate::program::lockctl;
use crate::until_it_listens;

async fn connect(server: &RedisServer) -> LockManager {
    LockManager::connect(&server.url()).await.unwrap()
}

/// Asks until the answer is as it should be.
fn eventually(server: &RedisServer, arguments: &[&str], is_right: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..500 {
        last = lockctl(server, arguments).json();
        if is_right(&last) {
            return last;
        }
    }
    panic!("{last:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn every_holder_of_a_semaphore_is_listed_and_can_be_released_alone() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let permits = |locks: &LockManager, site| {
        locks
            .semaphore("uploads", 4)
            .with_site(site)
            .with_ttl(Duration::from_secs(60))
            .with_wait(Duration::from_secs(120))
    };
    let light = permits(&one, "shop::light").acquire().await.unwrap();
    let heavy = permits(&two, "shop::heavy").with_weight(3).acquire().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(permits(&one, "shop::late").with_weight(2).acquire());

    let shown = lockctl(&server, &["show", "uploads", "--json"]).json();
    assert_eq!((&shown["state"], &shown["units"]), (&"shared".into(), &4.into()), "{shown:#}");
    let holders = shown["holders"].as_array().unwrap();
    let of = |site: &str| holders.iter().find(|holder| holder["site"] == site).unwrap();
    assert_eq!(holders.len(), 2, "{shown:#}");
    let heavy_shown = of("shop::heavy");
    assert_eq!([&heavy_shown["mode"], &of("shop::light")["mode"]], ["permit", "permit"]);
    assert_eq!([&heavy_shown["units"], &of("shop::light")["units"], &heavy_shown["limit"]], [3, 1, 4]);
    assert_eq!(heavy_shown["pid"], std::process::id());
    assert!(heavy_shown["ttl_left_seconds"].as_f64().unwrap() > 1.0 && heavy_shown["host"].is_string());
    let text = lockctl(&server, &["show", "uploads"]).stdout;
    for part in ["shared", "3 of 4 permits", "1 of 4 permits", "shop::heavy", "4 readers or permits"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(lockctl(&server, &["list"]).stdout.contains("shared, permit"));
    assert_eq!(shown["mode"], "permit", "{shown:#}");
    assert!(lockctl(&server, &["why", "uploads"]).stdout.contains("is shared"), "why");

    let queue = eventually(&server, &["waiters", "uploads", "--json"], |json| json["waiters"][0].is_object());
    assert_eq!([&queue["waiters"][0]["mode"], &queue["holders"][0]["mode"]], ["permit", "permit"], "{queue:#}");
    assert_eq!([&queue["waiters"][0]["units"], &queue["waiters"][0]["limit"]], [2, 4]);
    let text = lockctl(&server, &["waiters", "uploads"]).stdout;
    assert!(text.contains("2 of 4 permits") && text.contains("shop::heavy"), "{text}");

    until_it_listens(&server);
    let owner = heavy_shown["owner"].as_str().unwrap();
    let other = "5f".repeat(16);
    lockctl(&server, &["release", "uploads", "--expect-owner", &other, "--reason", "x"]).assert_code(1);
    lockctl(&server, &["release", "uploads", "--expect-owner", owner, "--reason", "x"]).assert_code(0);
    assert_eq!(heavy.lost().await, LossReason::Revoked);
    let late = waiting.join_next().await.unwrap().unwrap().unwrap();
    light.ensure_held().unwrap();
    late.release().await.unwrap();
    light.release().await.unwrap();
    assert_eq!(lockctl(&server, &["show", "uploads", "--json"]).json()["state"], "free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn readers_of_two_processes_and_the_writer_behind_them_are_listed() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let first = one.read("price").with_site("shop::quote").acquire().await.unwrap();
    let second = two.read("price").with_site("shop::show").acquire().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(two.write("price").with_site("shop::reprice").with_wait(Duration::from_secs(120)).acquire());
    let queue = eventually(&server, &["waiters", "price", "--json"], |json| json["waiters"][0].is_object());
    assert_eq!(queue["waiters"][0]["mode"], "write", "{queue:#}");
    let mut sites: Vec<&str> =
        queue["holders"].as_array().unwrap().iter().map(|holder| holder["site"].as_str().unwrap()).collect();
    sites.sort_unstable();
    assert_eq!(sites, ["shop::quote", "shop::show"]);
    assert!(queue["holders"].as_array().unwrap().iter().all(|holder| holder["mode"] == "read"), "{queue:#}");
    first.release().await.unwrap();
    second.release().await.unwrap();
    let writer = waiting.join_next().await.unwrap().unwrap().unwrap();
    let shown = lockctl(&server, &["show", "price", "--json"]).json();
    assert_eq!((&shown["state"], &shown["site"]), (&"held".into(), &"shop::reprice".into()));
    writer.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_leader_of_an_election_is_told_with_what_it_announced() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let nobody = lockctl(&server, &["leader", "billing"]);
    nobody.assert_code(1);
    assert!(nobody.stdout.contains("nobody leads billing"), "{nobody:?}");
    let leads = one.elect("billing").announcing("10.0.0.3:8080").campaign().await.unwrap();
    let mut standing = tokio::task::JoinSet::new();
    standing.spawn(two.elect("billing").announcing("10.0.0.4:8080").campaign());
    let told = eventually(&server, &["leader", "billing", "--json"], |json| json["candidates"][0].is_object());
    assert_eq!(told["leader"]["announced"], "10.0.0.3:8080", "{told:#}");
    assert_eq!((&told["leader"]["pid"], &told["election"]), (&std::process::id().into(), &"billing".into()));
    let text = lockctl(&server, &["leader", "billing"]);
    text.assert_code(0);
    assert!(text.stdout.contains("billing is led by 10.0.0.3:8080") && text.stdout.contains("10.0.0.4"), "{text:?}");
    leads.resign().await.unwrap();
    let next = standing.join_next().await.unwrap().unwrap().unwrap();
    assert!(lockctl(&server, &["leader", "billing"]).stdout.contains("led by 10.0.0.4:8080"));
    next.resign().await.unwrap();
}
