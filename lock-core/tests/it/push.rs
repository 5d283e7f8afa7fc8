//! Losses that Redis tells of by itself, by client tracking: known in milliseconds.

use std::time::{Duration, Instant};

use lock_core::testing::{EventLog, FaultProxy, RedisServer, Reply};
use lock_core::{Capabilities, LockBackend, LockGuard, LockManager, LossReason, RedisStore, ReleaseOutcome, Renew};

use crate::support::{MS, SECOND, SLACK, eventually, exists, figure, locks, locks_at, pttl};

/// A lease whose regular renewal is far away.
const TTL: Duration = Duration::from_secs(30);

/// What a noisy machine may make of the 50 ms that a push is meant to take.
const SOON: Duration = Duration::from_millis(500);

/// Takes locks and waits until the server tells of changes to them.
async fn armed(locks: &LockManager, keys: impl Iterator<Item = String>) -> Vec<LockGuard> {
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.lock(key.as_str()).with_ttl(TTL).await.unwrap());
    }
    let renewed = || events.names().iter().filter(|name| **name == "Renewed").count() >= guards.len();
    eventually("every lock is looked at soon", 5 * SECOND, renewed).await;
    guards
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("k{n}"))
}

async fn lost(guard: &LockGuard, what: &str) -> LossReason {
    let lost = tokio::time::timeout(9 * SECOND, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("{what}: {} was lost, and nobody was told", guard.key()))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    figure(&format!("push: {what}, {} tries, p50 and p99", times.len()), (p50, p99));
    assert!(p99 < SOON, "{what}: {p99:?}");
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.text().lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn foreign_changes_are_known_at_once() {
    let server = RedisServer::start();
    let locks = locks(&server);
    // Expired by the server, before anybody could raise it again.
    let expire = "redis.call('PEXPIRE', KEYS[1], 1) local t = redis.call('TIME') local now \
                  repeat now = redis.call('TIME') until (now[1] - t[1]) * 1000000 + now[2] - t[2] > 3000";
    for (what, command) in [
        ("foreign DEL", &["DEL"][..]),
        ("foreign SET", &["EVAL", "redis.call('SET', KEYS[1], 'mine')", "1"]),
        ("expiry after PEXPIRE 1", &["EVAL", expire, "1"]),
        ("another type", &["EVAL", "redis.call('DEL', KEYS[1]) redis.call('SADD', KEYS[1], 1)", "1"]),
    ] {
        let mut times = Vec::new();
        for guard in armed(&locks, names(60)).await {
            let command: Vec<&str> = command.iter().copied().chain([guard.key().as_str()]).collect();
            let start = Instant::now();
            server.command(&command);
            let reason = lost(&guard, what).await;
            times.push(start.elapsed());
            assert_eq!(reason, LossReason::Stolen, "{what}");
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
        }
        report(what, times);
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_shortened_lease_is_raised_again_or_known_to_be_lost() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let (mut saved, mut stolen) = (0, 0);
    for guard in armed(&locks, names(50)).await {
        server.command(&["PEXPIRE", guard.key().as_str(), "3"]);
        let raised = || pttl(&server, guard.key().as_str()) > 25_000;
        eventually("it is raised or lost", SECOND, || raised() || guard.ensure_held().is_err()).await;
        match guard.ensure_held() {
            Ok(()) => saved += 1,
            Err(error) => {
                assert_eq!(error.loss_reason(), Some(LossReason::Stolen));
                stolen += 1;
            }
        }
    }
    figure("push: leases cut to 3 ms, saved and known to be lost", (saved, stolen));
}

#[tokio::test]
async fn flushes_and_evictions_are_known_at_once() {
    let server = RedisServer::builder().with_maxmemory("0", "volatile-ttl").start();
    let locks = locks(&server);
    for what in ["FLUSHALL", "eviction"] {
        let mut times = Vec::new();
        for round in 0..50 {
            let guard = armed(&locks, std::iter::once(format!("k{round}"))).await.pop().unwrap();
            let start = Instant::now();
            if what == "FLUSHALL" {
                server.command(&["FLUSHALL"]);
            } else {
                server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            assert_eq!(lost(&guard, what).await, LossReason::Stolen);
            times.push(start.elapsed());
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
        report(what, times);
    }
}

#[tokio::test]
async fn a_fixed_lease_hears_too_and_grows_no_longer() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let start = Instant::now();
    let guard = locks.lock("k").with_ttl(TTL).with_renew(Renew::Off).await.unwrap();
    tokio::time::sleep(300 * MS).await;
    server.command(&["FLUSHDB"]);
    assert_eq!(lost(&guard, "fixed").await, LossReason::Stolen);
    drop(guard);

    let guard = locks.lock("k").with_ttl(2 * SECOND).with_renew(Renew::Off).await.unwrap();
    let start_again = start.elapsed();
    for _ in 0..5 {
        tokio::time::sleep(200 * MS).await;
        // Suspects, and new connections: each time the lease is confirmed, and not raised.
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        tokio::time::sleep(100 * MS).await;
        let aged = start.elapsed().saturating_sub(start_again);
        assert!(guard.remaining() <= (2 * SECOND).saturating_sub(aged), "{:?} after {aged:?}", guard.remaining());
    }
    assert!(pttl(&server, "k") <= 600, "{}", pttl(&server, "k"));
    assert_eq!(lost(&guard, "fixed").await, LossReason::Expired);
    assert_eq!(events.names().iter().filter(|name| **name == "Renewed").count(), 0);
}

#[tokio::test]
async fn short_holds_cost_nothing() {
    let server = RedisServer::start();
    let locks = locks(&server);
    for n in 0..300 {
        locks.lock(format!("k{n}").as_str()).with_ttl(TTL).await.unwrap().release().await.unwrap();
    }
    let tracked = server.command(&["INFO", "stats"]);
    assert!(tracked.text().contains("tracking_total_keys:0\r\n"), "{}", tracked.text());
    assert_eq!((calls(&server, "getex"), calls(&server, "client|caching")), (0, 0), "something was renewed");
}

#[tokio::test]
async fn without_permission_renewals_find_out() {
    for denied in ["-client|tracking", "-getex"] {
        let server = RedisServer::start();
        let rules = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", denied];
        assert_eq!(server.command(&rules), Reply::Text("OK".to_owned()));
        let store =
            std::sync::Arc::new(RedisStore::new(&format!("redis://app:secret@127.0.0.1:{}", server.port())).unwrap());
        let locks = LockManager::builder(std::sync::Arc::clone(&store)).build().unwrap();
        assert!(store.capabilities().push_loss);
        let ttl = 1_800 * MS;
        let guard = locks.lock("k").with_ttl(ttl).await.unwrap();
        tokio::time::sleep(ttl).await;
        guard.ensure_held().unwrap();
        assert_eq!(store.capabilities(), Capabilities::polled().with_queue(), "{denied}");
        server.command(&["DEL", "k"]);
        let start = Instant::now();
        assert_eq!(lost(&guard, denied).await, LossReason::Stolen);
        figure(&format!("no push, {denied}, ttl {ttl:?}"), start.elapsed());
        assert!(start.elapsed() < ttl / 3 + SLACK);
    }
}

#[tokio::test]
async fn a_theft_during_an_outage_is_known_after_it() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = locks_at(&proxy.url());
    let mut times = Vec::new();
    for guard in armed(&locks, names(10)).await {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        server.command(&["DEL", guard.key().as_str()]);
        let start = Instant::now();
        assert_eq!(lost(&guard, "killed connection").await, LossReason::Stolen);
        times.push(start.elapsed());
    }
    report("theft right after the connection was killed", times);

    // A connection that is dead and does not say so: doubted after a renewal, then replaced.
    let ttl = 6 * SECOND;
    let guard = locks.lock("k").with_ttl(ttl).await.unwrap();
    tokio::time::sleep(300 * MS).await;
    proxy.strand_connections();
    server.command(&["DEL", "k"]);
    let start = Instant::now();
    assert_eq!(lost(&guard, "stranded").await, LossReason::Stolen);
    figure(&format!("theft behind a stranded connection, ttl {ttl:?}"), start.elapsed());
    assert!(start.elapsed() < ttl / 2 + 2 * SECOND + SLACK, "{:?}", start.elapsed());
}

#[tokio::test]
async fn renewals_and_hand_offs_look_like_no_theft() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let events = EventLog::default();
    one.observe(events.clone());
    two.observe(events.clone());
    let end = Instant::now() + 10 * SECOND;
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(one.lock(format!("still{n}").as_str()).await.unwrap());
    }
    let mut tasks = Vec::new();
    for n in 0..16_u64 {
        let locks = if n % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            while Instant::now() < end {
                let guard = locks.lock(format!("hot{}", n % 3).as_str()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..500) * (count % 4) / 3)).await;
                guard.ensure_held().unwrap();
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
                count += 1;
            }
            count
        }));
    }
    let mut cycles = 0;
    for task in tasks {
        cycles += task.await.unwrap();
    }
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert!(!events.names().contains(&"Lost"));
    figure("push: hand-offs in 10 s without a false loss", cycles);
}

#[tokio::test]
async fn tracking_costs_no_commands() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut guards = Vec::new();
    for n in 0..3 {
        guards.push(locks.lock(format!("k{n}").as_str()).await.unwrap());
        // Apart, so that they do not share batches.
        tokio::time::sleep(104 * MS).await;
    }
    tokio::time::sleep(300 * MS).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    let renewals = || events.names().iter().filter(|name| **name == "Renewed").count();
    let before = renewals();
    tokio::time::sleep(6 * SECOND).await;
    let renewed = renewals() - before;
    let sent: u64 = ["evalsha", "eval", "ping", "client|tracking"].iter().map(|name| calls(&server, name)).sum();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let ratio = sent as f64 / renewed as f64;
    figure("push: commands per renewal", (ratio, renewed));
    assert!(renewed > 40 && ratio <= 1.1, "{sent} commands for {renewed} renewals");
}

#[tokio::test]
async fn ten_thousand_locks_survive_or_notice_a_flush() {
    const COUNT: usize = 10_000;
    let server = RedisServer::builder().with("slowlog-log-slower-than", "5000").start();
    let locks = locks(&server);
    let mut guards = Vec::new();
    let names_of_all: Vec<String> = names(COUNT).collect();
    for names in names_of_all.chunks(100) {
        let take = |name: &String| {
            let (locks, name) = (locks.clone(), name.clone());
            tokio::spawn(async move { locks.lock(name.as_str()).with_ttl(TTL).await.unwrap() })
        };
        let tasks: Vec<_> = names.iter().map(take).collect();
        for task in tasks {
            guards.push(task.await.unwrap());
        }
    }
    let tracked = || {
        let stats = server.command(&["INFO", "stats"]);
        stats.text().contains(&format!("tracking_total_keys:{COUNT}\r\n"))
    };
    eventually("all are tracked", 10 * SECOND, tracked).await;
    tokio::time::sleep(300 * MS).await;
    server.command(&["SLOWLOG", "RESET"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    // Each by itself first, for a tenth of them.
    let start = Instant::now();
    for name in names(COUNT / 10) {
        server.command(&["DEL", &name]);
    }
    for guard in &guards[..COUNT / 10] {
        assert_eq!(lost(guard, "DEL").await, LossReason::Stolen);
    }
    figure("push: 1,000 DELs until all are known", (start.elapsed(), calls(&server, "evalsha")));
    server.command(&["CONFIG", "RESETSTAT"]);
    let start = Instant::now();
    server.command(&["FLUSHALL"]);
    for guard in &guards {
        assert_eq!(lost(guard, "FLUSHALL").await, LossReason::Stolen);
    }
    let took = start.elapsed();
    let scripts = calls(&server, "evalsha");
    figure("push: 10,000 locks know of a FLUSHALL, scripts", (took, scripts));
    assert!(took < 2 * SECOND, "{took:?}");
    let Reply::List(slow) = server.command(&["SLOWLOG", "GET", "-1"]) else { panic!("no slowlog") };
    let slow = slow.iter().filter(|entry| format!("{entry:?}").contains("EVAL")).count();
    figure("push: scripts over 5 ms, by the clock of a busy machine", slow);
    assert!(slow <= 5, "{slow} scripts took longer than 5 ms");
    assert!(!exists(&server, "k0"));
}
