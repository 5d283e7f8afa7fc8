//! The inspector on a real Redis.

mod cluster;
mod quorum;
mod roles;

use std::future::IntoFuture;
use std::time::Duration;

use lock_core::{LockErrorKind, LockManager};
use lock_metrics::{FleetInspector, MetricsHandle, builder};
use lock_testing::{RedisServer, Reply, Stopwatch, limit};

use crate::support::{Scrape, eventually};

/// How long to wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);

fn scrape(metrics: &MetricsHandle) -> Scrape {
    Scrape::read(&metrics.render())
}

fn of(scrape: &Scrape, name: &str, lock: &str) -> f64 {
    scrape.find(&format!("inspector_{name}"), &[("lock", lock)]).unwrap_or(0.0)
}

fn held_as(scrape: &Scrape, lock: &str, mode: &str) -> Option<f64> {
    scrape.find("inspector_held", &[("lock", lock), ("mode", mode)])
}

/// When the last scan ended, 0 if no scan is exported.
fn last(metrics: &MetricsHandle) -> f64 {
    scrape(metrics).find("inspector_last_success_timestamp_seconds", &[]).unwrap_or(0.0)
}

fn inspector(server: &RedisServer) -> FleetInspector {
    FleetInspector::new(&server.url()).unwrap().with_pause(Duration::ZERO)
}

#[tokio::test]
#[limit]
async fn the_fleet_is_counted_by_lock_name() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 10000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    server.command(&["SET", "legacy:a", "nonce", "PX", "60000"]);
    server.command(&["SET", "legacy:b", "nonce"]);
    server.command(&["SET", "lock:user:9", "nonce", "PX", "60000"]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    // The names of a program that this inspector does not know.
    let user = "lock:user:<user_id>";
    for (key, name) in [("lock:user:1", user), ("lock:user:2", user), ("lock:order:7", "orders"), ("here", "else")] {
        guards.push(locks.lock(key).with_label(name).with_ttl(Duration::from_secs(20)).acquire().await.unwrap());
    }
    let kept = locks.lock("lock:user:kept").with_min_hold(Duration::from_secs(9)).acquire().await.unwrap();
    kept.release().await.unwrap();

    let metrics = builder().build().unwrap();
    assert!(!metrics.render().contains("inspector"), "nothing is exported before there is an inspector");
    let inspector = inspector(&server)
        .with_template("lock:order:<id>", "wrong")
        .with_prefix("legacy:", "legacy")
        .with_template("never:<x>", "never");
    inspector.inspect_once(&metrics).await.unwrap();

    let seen = scrape(&metrics);
    let held = |lock| of(&seen, "held", lock);
    // A foreign string counts only below a configured prefix, so lock:user:9 does not count.
    assert_eq!((held("lock:user:<user_id>"), held("orders"), held("legacy")), (2.0, 1.0, 2.0));
    assert_eq!((held("else"), held("other"), held("never"), held("wrong")), (1.0, 0.0, 0.0, 0.0));
    assert_eq!((of(&seen, "keys_without_ttl", "legacy"), of(&seen, "keys_without_ttl", "orders")), (1.0, 0.0));
    assert_eq!(of(&seen, "waiters", "orders"), 0.0);
    let start = of(&seen, "oldest_hold_start_timestamp_seconds", "lock:user:<user_id>");
    let now = seen.get("inspector_last_success_timestamp_seconds", &[]);
    assert!(start > 1e9 && start < now + 1.0 && now - start < 60.0, "{start} {now}");
    // A classic client stores no token.
    assert_eq!(of(&seen, "oldest_hold_start_timestamp_seconds", "legacy"), 0.0);
    let ttl = of(&seen, "min_ttl_seconds", "orders");
    assert!(ttl > 0.0 && ttl <= 20.0, "{ttl}");
    assert_eq!((of(&seen, "min_ttl_seconds", "never"), seen.get("inspector_truncated", &[])), (0.0, 0.0));
    let took = seen.get("inspector_scan_duration_seconds", &[]);
    assert!(took > 0.0 && took < 30.0, "{took}");
    println!("10,006 keys in {took:.3} s without pauses");

    // Exported under the same address that the managers export for their locks.
    let store = format!("store=\"127.0.0.1:{}\"", server.url().rsplit_once(':').unwrap().1.trim_end_matches('/'));
    assert!(metrics.render().contains(&store), "{store}");
    // A lock that is gone is exported as 0, not as its last value.
    for guard in guards {
        guard.release().await.unwrap();
    }
    inspector.inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    assert_eq!((of(&seen, "held", "orders"), of(&seen, "oldest_hold_start_timestamp_seconds", "orders")), (0.0, 0.0));
    assert!(!metrics.render().contains("lock:user:1"), "a key became a label");
    locks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn waiters_of_the_fleet_are_counted() {
    let server = RedisServer::start();
    let (one, two) =
        (LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap());
    let guard = one.lock("lock:user:1").with_label("user").acquire().await.unwrap();
    let waiter = tokio::task::JoinSet::from_iter([{
        let two = two.clone();
        async move { two.lock("lock:user:1").with_wait(PATIENCE).acquire().await.unwrap().release().await.unwrap() }
    }]);
    let metrics = builder().build().unwrap();
    let inspector = inspector(&server);
    let looking = Stopwatch::start();
    loop {
        inspector.inspect_once(&metrics).await.unwrap();
        if of(&scrape(&metrics), "waiters", "user") == 1.0 {
            break;
        }
        assert!(looking.elapsed() < PATIENCE, "nobody is seen waiting");
    }
    assert_eq!(of(&scrape(&metrics), "held", "user"), 1.0);
    guard.release().await.unwrap();
    waiter.join_all().await;
    inspector.inspect_once(&metrics).await.unwrap();
    assert_eq!(of(&scrape(&metrics), "waiters", "user"), 0.0);
}

#[tokio::test]
#[limit]
async fn a_budget_truncates_and_says_so() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 10000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    let metrics = builder().build().unwrap();
    inspector(&server).with_max_keys(1000).inspect_once(&metrics).await.unwrap();
    assert_eq!(scrape(&metrics).get("inspector_truncated", &[]), 1.0);
    inspector(&server).inspect_once(&metrics).await.unwrap();
    assert_eq!(scrape(&metrics).get("inspector_truncated", &[]), 0.0);
}

#[test]
#[limit]
fn one_of_two_is_elected_and_the_other_takes_over() {
    let server = RedisServer::start();
    server.command(&["SET", "legacy:a", "nonce"]);
    let start = |metrics: &MetricsHandle| {
        let inspector = inspector(&server).with_prefix("legacy:", "legacy").with_interval(Duration::from_millis(50));
        inspector.start(metrics).unwrap()
    };
    let (one, two) = (builder().build().unwrap(), builder().build().unwrap());
    let first = start(&one);
    eventually("the first scan", || (last(&one) > 0.0).then_some(()));
    let second = start(&two);
    let before = last(&one);
    eventually("ten more scans", || (last(&one) > before + 0.5).then_some(()));
    assert!(!two.render().contains("distributed_lock_inspector"), "only the elected one tells anything");
    assert_eq!(of(&scrape(&one), "held", "legacy"), 1.0);
    // The inspector's own lock is not counted.
    assert!(!one.render().contains("distributed-lock:inspector"));
    assert_eq!(of(&scrape(&one), "held", "other"), 0.0);
    drop(first);
    eventually("the second takes over", || (of(&scrape(&two), "held", "legacy") == 1.0).then_some(()));
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(second.stop());
    assert_eq!(server.command(&["EXISTS", "distributed-lock:inspector"]), Reply::Int(0), "the lock is given back");
}

#[test]
#[limit]
fn an_election_that_is_lost_stops_the_scans_and_ends_the_numbers() {
    let server = RedisServer::start();
    server.command(&["SET", "legacy:a", "nonce"]);
    let metrics = builder().build().unwrap();
    let inspector = inspector(&server).with_prefix("legacy:", "legacy").with_interval(Duration::from_millis(50));
    let _running = inspector.start(&metrics).unwrap();
    eventually("a scan", || (of(&scrape(&metrics), "held", "legacy") == 1.0).then_some(()));
    // Another instance is elected; the holder notices at its next renewal, after a third of 30 s.
    server.command(&["SET", "distributed-lock:inspector", "somebody", "PX", "60000"]);
    eventually("the numbers are gone", || (!metrics.render().contains("distributed_lock_inspector")).then_some(()));
}

#[test]
#[limit]
fn a_server_that_comes_later_is_found() {
    let mut server = RedisServer::start();
    server.kill();
    let metrics = builder().build().unwrap();
    let _running = inspector(&server).with_interval(Duration::from_millis(50)).start(&metrics).unwrap();
    assert_eq!(last(&metrics), 0.0);
    server.restart();
    eventually("a scan", || (last(&metrics) > 0.0).then_some(()));
}

#[tokio::test]
#[limit]
async fn a_failed_scan_keeps_what_was_known_and_no_secret_is_told() {
    let mut server = RedisServer::builder().with_password("open-sesame").start();
    let metrics = builder().build().unwrap();
    let inspector = inspector(&server);
    assert!(!format!("{inspector:?}").contains("sesame"), "{inspector:?}");
    inspector.inspect_once(&metrics).await.unwrap();
    let before = scrape(&metrics).get("inspector_last_success_timestamp_seconds", &[]);
    server.kill();
    let error = inspector.inspect_once(&metrics).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    assert_eq!(scrape(&metrics).get("inspector_last_success_timestamp_seconds", &[]), before);
    let error = FleetInspector::new("redis://:open-sesame@host:port").unwrap_err();
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

#[tokio::test]
#[limit]
async fn a_namespace_has_an_inspector_of_its_own() {
    let server = RedisServer::start();
    let url = |prefix: &str| format!("{}?key_prefix={prefix}", server.url());
    let [prod, test] = ["prod:", "test:"].map(url);
    let (prod, test) = (LockManager::connect(&prod).await.unwrap(), LockManager::connect(&test).await.unwrap());
    let job = |locks: &LockManager, key: &str| locks.lock(key).with_label("nightly").into_future();
    let _job = job(&prod, "nightly:7").await.unwrap();
    let _others = [job(&test, "nightly:7").await.unwrap(), job(&test, "nightly:8").await.unwrap()];
    for key in ["prod:legacy:a", "test:legacy:a", "legacy:a"] {
        server.command(&["SET", key, "nonce", "PX", "60000"]);
    }
    let metrics = builder().build().unwrap();
    FleetInspector::new(&url("prod:")).unwrap().with_prefix("legacy:", "legacy").inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    assert_eq!((of(&seen, "held", "nightly"), of(&seen, "held", "legacy")), (1.0, 1.0), "{}", metrics.render());
    // It is a store of its own, under the name that its managers show.
    let store = format!("store=\"{}#prod:\"", server.url().trim_start_matches("redis://").trim_end_matches('/'));
    assert!(metrics.render().contains(&store), "{store} in {}", metrics.render());
}

#[tokio::test]
#[limit]
async fn a_queue_that_cannot_be_read_is_unknown_and_not_empty() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let (_fine, _odd) = (locks.lock("fine").with_label("fine").await, locks.lock("odd").with_label("odd").await);
    // Something else in place of its queue: the server refuses to count it.
    server.command(&["SET", "{odd}@queue", "garbage"]);
    let metrics = builder().build().unwrap();
    inspector(&server).inspect_once(&metrics).await.unwrap();
    let waiters = |lock| scrape(&metrics).find("inspector_waiters", &[("lock", lock)]);
    assert_eq!((waiters("fine"), waiters("odd")), (Some(0.0), None));
    assert_eq!(of(&scrape(&metrics), "held", "odd"), 1.0);
    server.command(&["DEL", "{odd}@queue"]);
    inspector(&server).inspect_once(&metrics).await.unwrap();
    assert_eq!(waiters("odd"), Some(0.0));
}

#[tokio::test]
#[limit]
async fn who_queues_for_which_hold_is_told_by_its_call_site() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let hold = |key, site| locks.lock(key).with_label("user").with_site(site).into_future();
    let _guards = [hold("a", "shop::charge").await, hold("b", "shop::charge").await, hold("c", "shop::report").await];
    for owner in 1..4 {
        server.command(&["ZADD", "{b}@queue", "1", &format!("{owner:032x}")]);
    }
    let metrics = builder().build().unwrap();
    inspector(&server).inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    let of = |name: &str, site| seen.find(&format!("inspector_{name}"), &[("lock", "user"), ("site", site)]);
    assert_eq!(of("waited_hold_waiters", "shop::charge"), Some(3.0), "of b alone");
    assert!(of("waited_hold_start_timestamp_seconds", "shop::charge").unwrap() > 1e9);
    assert_eq!(of("waited_hold_waiters", "shop::report"), None, "nobody waits for it");
}

#[tokio::test]
#[limit]
async fn the_fleet_has_room_for_more_names_than_a_process_and_counts_what_has_none() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let _first = locks.lock("k0").with_label("name-0.").with_ttl(Duration::from_secs(600)).await.unwrap();
    // Forty services of six names, and later far more: the value of the first with other names.
    let take = |to: u32| {
        let script = "local value = redis.call('GET', 'k0') for i = 1, ARGV[1] do \
                      redis.call('SET', 'k' .. i, (value:gsub('name%-0%.', 'name-' .. i .. '.')), 'PX', 600000) end";
        server.command(&["EVAL", script, "0", &to.to_string()]);
    };
    let metrics = builder().build().unwrap();
    let overflow = || scrape(&metrics).get("inspector_label_overflow_total", &[]);
    take(240);
    inspector(&server).inspect_once(&metrics).await.unwrap();
    assert_eq!((of(&scrape(&metrics), "held", "name-240."), overflow()), (1.0, 0.0));
    take(2100);
    inspector(&server).inspect_once(&metrics).await.unwrap();
    let beyond = of(&scrape(&metrics), "held", "other");
    assert!(beyond > 100.0 && beyond < 200.0, "{beyond}");
    assert_eq!(overflow(), beyond);
}

#[tokio::test]
#[limit]
async fn commands_under_lockctl_run_are_told_apart_and_stuck_only_when_they_said_so() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let run = |key: &'static str, site| locks.lock(key).with_label(key).with_site(site).into_future();
    let _guards = [
        run("backup", "lockctl run backup.sh").await,
        run("late", "lockctl run late.sh (stuck after 0s)").await,
        run("early", "lockctl run early.sh (stuck after 7200s)").await,
        run("plain", "shop::charge").await,
    ];
    let metrics = builder().build().unwrap();
    let of = |name: &str| {
        let seen = scrape(&metrics);
        ["backup", "late", "early", "plain"].map(|lock| of(&seen, name, lock))
    };
    // Its age is in whole milliseconds of the server.
    for _ in 0..1000 {
        inspector(&server).inspect_once(&metrics).await.unwrap();
        if of("commands_stuck")[1] == 1.0 {
            break;
        }
    }
    assert_eq!(of("commands"), [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(of("commands_stuck"), [0.0, 1.0, 0.0, 0.0]);
}
