//! Losses that Redis reports by itself, through client tracking, within milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{
    LockBackend, LockEvent, LockEventKind, LockGuard, LockManager, LossReason, RedisStore, ReleaseOutcome, Renew,
};
use lock_testing::{EventLog, FaultProxy, RedisServer, Reply, Stopwatch, limit};

use crate::support::{LONG, MS, SECOND, eventually, exists, figure, locks, locks_at, pttl, renewals, watched};

/// A lease whose regular renewal, after a third of it, is so far away that only a push can report a
/// loss before.
const TTL: Duration = Duration::from_secs(90);

/// The promised limit for reporting a loss.
const SOON: Duration = Duration::from_millis(50);

/// Takes locks and waits until the server reports changes to them.
async fn armed(locks: &LockManager, keys: impl Iterator<Item = String>) -> Vec<LockGuard> {
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.lock(key.as_str()).with_ttl(TTL).await.unwrap());
    }
    let renewed = || events.names().iter().filter(|name| **name == "Renewed").count() >= guards.len();
    eventually("every lock is looked at soon", renewed).await;
    guards
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("k{n}"))
}

async fn lost(guard: &LockGuard, what: &str) -> LossReason {
    let lost = tokio::time::timeout(LONG, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("{what}: {} was lost, and nobody was told", guard.key()))
}

/// Waits until the holder of a lock that was just taken away knows of the loss, and checks that
/// this was in time.
async fn lost_soon(guard: &LockGuard, what: &str, taken_away: Stopwatch) -> Duration {
    assert_eq!(lost(guard, what).await, LossReason::Stolen, "{what}");
    taken_away.assert_within(SOON, what);
    taken_away.elapsed()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    figure(&format!("push: {what}, {} tries, p50 and p99", times.len()), (p50, p99));
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.text().lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
#[limit]
async fn foreign_changes_are_known_at_once_since_redis_7() {
    let server = RedisServer::start();
    let locks = locks(&server);
    // The server expires the lock before anybody could raise its lease again. The script counts in a
    // loop, because from 7.2 on TIME stands still in a script.
    let expire = "redis.call('PEXPIRE', KEYS[1], 1) for _ = 1, 2000000 do end";
    for (what, command) in [
        ("foreign DEL", &["DEL"][..]),
        ("foreign SET", &["EVAL", "redis.call('SET', KEYS[1], 'mine')", "1"]),
        ("expiry after PEXPIRE 1", &["EVAL", expire, "1"]),
        ("another type", &["EVAL", "redis.call('DEL', KEYS[1]) redis.call('SADD', KEYS[1], 1)", "1"]),
    ] {
        let mut times = Vec::new();
        for guard in armed(&locks, names(60)).await {
            let command: Vec<&str> = command.iter().copied().chain([guard.key().as_str()]).collect();
            let watch = Stopwatch::start();
            server.command(&command);
            times.push(lost_soon(&guard, what, watch).await);
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
        }
        report(what, times);
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
#[limit]
async fn a_shortened_lease_is_raised_again_or_known_to_be_lost_since_redis_7() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let (mut saved, mut stolen) = (0, 0);
    for guard in armed(&locks, names(50)).await {
        server.command(&["PEXPIRE", guard.key().as_str(), "3"]);
        let raised = || pttl(&server, guard.key().as_str()) > 45_000;
        eventually("it is raised or lost", || raised() || guard.ensure_held().is_err()).await;
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
#[limit(180)]
async fn flushes_and_evictions_are_known_at_once_since_redis_7() {
    let server = RedisServer::builder().with_maxmemory("0", "volatile-ttl").start();
    let locks = locks(&server);
    for what in ["FLUSHALL", "eviction"] {
        let mut times = Vec::new();
        for round in 0..50 {
            let guard = armed(&locks, std::iter::once(format!("k{round}"))).await.pop().unwrap();
            let watch = Stopwatch::start();
            if what == "FLUSHALL" {
                server.command(&["FLUSHALL"]);
            } else {
                server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            times.push(lost_soon(&guard, what, watch).await);
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
        report(what, times);
    }
}

#[tokio::test]
#[limit]
async fn a_fixed_lease_hears_too_and_grows_no_longer_since_redis_7() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock("k").with_ttl(TTL).with_renew(Renew::Off).await.unwrap();
    eventually("it is tracked", || tracked(&server) == 1).await;
    server.command(&["FLUSHDB"]);
    assert_eq!(lost(&guard, "fixed").await, LossReason::Stolen);
    drop(guard);

    let guard = locks.lock("k").with_ttl(4 * SECOND).with_renew(Renew::Off).await.unwrap();
    let granted = Stopwatch::start();
    for _ in 0..5 {
        tokio::time::sleep(200 * MS).await;
        // After each suspicion and each new connection the lease is confirmed, but not raised.
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        tokio::time::sleep(100 * MS).await;
        let aged = granted.elapsed();
        assert!(guard.remaining() <= (4 * SECOND).saturating_sub(aged), "{:?} after {aged:?}", guard.remaining());
    }
    assert!(pttl(&server, "k") <= 2_600, "{}", pttl(&server, "k"));
    // Either may be noticed first: the deadline, or the key that disappears right after it.
    assert!(matches!(lost(&guard, "fixed").await, LossReason::Expired | LossReason::Stolen));
    assert_eq!(events.count("Renewed"), 0);
}

/// Returns how many keys the server tracks for a client.
fn tracked(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]);
    stats.text().lines().find_map(|line| line.strip_prefix("tracking_total_keys:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
#[limit]
async fn short_holds_cost_nothing() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut long = 0;
    for n in 0..300 {
        let watch = Stopwatch::start();
        locks.lock(format!("k{n}").as_str()).with_ttl(TTL).await.unwrap().release().await.unwrap();
        // The first look comes after a tenth of a second, and on a busy machine a short hold can last
        // that long.
        long += u64::from(watch.elapsed() >= 50 * MS);
    }
    figure("holds of no time that lasted 50 ms, of 300", long);
    // A release reads what it frees, but raises no expiry. Each greeting tries once whether a script may.
    let looked = calls(&server, "pexpire").saturating_sub(calls(&server, "hello")) + calls(&server, "client|caching");
    assert!(looked <= 2 * long, "{looked} looks at {long} locks");
    assert!(tracked(&server) <= long);
}

#[tokio::test]
#[limit]
async fn without_permission_renewals_find_out_since_redis_7() {
    for denied in ["-client|tracking", "-mget"] {
        let server = RedisServer::start();
        let rules = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", denied];
        assert_eq!(server.command(&rules), Reply::Text("OK".to_owned()));
        let store = Arc::new(RedisStore::new(&format!("redis://app:secret@127.0.0.1:{}", server.port())).unwrap());
        let events = EventLog::default();
        let locks = LockManager::builder_shared(Arc::clone(&store)).observer(events.clone()).build().unwrap();
        let guard = watched(&locks, "k").await.unwrap();
        renewals(&events, 5).await;
        guard.ensure_held().unwrap();
        assert!(!store.capabilities().push_loss, "{denied}");
        let watch = Stopwatch::start();
        server.command(&["DEL", "k"]);
        assert_eq!(lost(&guard, denied).await, LossReason::Stolen);
        figure(&format!("no push, {denied}, renewed every 200 ms"), watch.elapsed());
        watch.assert_within(200 * MS, "a theft that a renewal finds");

        // A permission that is back is noticed over the same connection.
        let listening = || {
            let clients = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            clients.text().split(' ').next().unwrap().to_owned()
        };
        let (id, guard) = (listening(), locks.lock("k").with_ttl(TTL).await.unwrap());
        server.command(&["ACL", "SETUSER", "app", "+@all"]);
        eventually("the server reports changes", || store.capabilities().push_loss && tracked(&server) == 1).await;
        let watch = Stopwatch::start();
        server.command(&["DEL", "k"]);
        lost_soon(&guard, denied, watch).await;
        assert_eq!(listening(), id, "{denied}");
        // The other way round: what tracked is refused.
        if denied == "-mget" {
            let guard = watched(&locks, "k").await.unwrap();
            server.command(&["ACL", "SETUSER", "app", denied]);
            eventually("it is refused", || !store.capabilities().push_loss).await;
            renewals(&events, 2).await;
            server.command(&["ACL", "SETUSER", "app", "+@all"]);
            eventually("it is back", || store.capabilities().push_loss && tracked(&server) == 1).await;
            guard.ensure_held().unwrap();
        }
    }
}

#[tokio::test]
#[limit]
async fn a_theft_during_an_outage_is_known_after_it() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = locks_at(&proxy.url());
    let mut times = Vec::new();
    for guard in armed(&locks, names(10)).await {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        server.command(&["DEL", guard.key().as_str()]);
        let watch = Stopwatch::start();
        times.push(lost_soon(&guard, "killed connection", watch).await);
    }
    report("theft right after the connection was killed", times);

    // A connection is dead but stays open: it becomes doubtful after a renewal, and is then
    // replaced.
    let ttl = 24 * SECOND;
    let guard = locks.lock("k").with_ttl(ttl).with_renew(Renew::Every(SECOND)).await.unwrap();
    proxy.strand_connections();
    server.command(&["DEL", "k"]);
    let watch = Stopwatch::start();
    assert_eq!(lost(&guard, "stranded").await, LossReason::Stolen);
    figure(&format!("theft behind a stranded connection, ttl {ttl:?}, renewed every second"), watch.elapsed());
    // This allows for a renewal, a timeout over each of the two connections that are stranded, which is where a busy
    // machine may ask in turn, and a new one.
    watch.assert_within(SECOND + 2 * (ttl / 6) + 6 * SECOND, "a theft behind a stranded connection");
}

#[tokio::test]
#[limit]
async fn renewals_and_hand_offs_look_like_no_theft() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let stolen = Arc::new(AtomicU64::new(0));
    for locks in [&one, &two] {
        let stolen = Arc::clone(&stolen);
        locks.observe(move |event: &LockEvent<'_>| {
            if matches!(event.kind, LockEventKind::Lost { reason: LossReason::Stolen, .. }) {
                stolen.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(watched(&one, &format!("still{n}")).await.unwrap());
    }
    let mut tasks = Vec::new();
    for n in 0..16_u64 {
        let locks = if n % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move {
            for count in 0..10 {
                let guard = watched(&locks, &format!("hot{}", n % 3)).with_wait(LONG).await.unwrap();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..500) * (count % 4) / 3)).await;
                // At worst a stall of the machine lost the lock, which is not a theft.
                let _ = guard.release().await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_eq!(stolen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
#[limit]
async fn tracking_costs_no_commands_since_redis_7() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut guards = Vec::new();
    for n in 0..3 {
        guards.push(watched(&locks, &format!("k{n}")).await.unwrap());
        // Spaced out, so that the renewals do not share batches.
        tokio::time::sleep(66 * MS).await;
    }
    renewals(&events, 3).await;
    // Read in this order, so that events in between, however many, cannot make the ratio larger.
    let before = events.count("Renewed") as u64;
    server.command(&["CONFIG", "RESETSTAT"]);
    renewals(&events, 60).await;
    let sent: u64 = ["evalsha", "eval", "ping", "client|tracking"].iter().map(|name| calls(&server, name)).sum();
    let renewed = events.count("Renewed") as u64 - before;
    figure("push: commands, renewals", (sent, renewed));
    // One script raises, reads and tracks. Three may be in flight.
    assert!(sent <= renewed + renewed / 10 + 6, "{sent} commands for {renewed} renewals");
}

/// Such a server forgets keys at random, and reports them as changed.
#[tokio::test]
#[limit]
async fn a_server_that_tracks_too_many_keys_reports_no_theft_and_causes_no_storm_since_redis_7() {
    const COUNT: usize = 100;
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
    let locks = locks(&server);
    let guards = armed(&locks, names(COUNT)).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    // So long, because only then do pauses that double differ enough from pauses of 10 ms.
    tokio::time::sleep(5 * SECOND).await;
    let renewals = calls(&server, "pexpire");
    figure("push: a full table, renewals of 100 locks in 5 s", renewals);
    assert!(renewals > 0, "the table was not full");
    // 10 ms, 20 ms … 2560 ms make 5 s.
    assert!(renewals <= 11 * COUNT as u64, "{renewals} renewals");
    for guard in &guards {
        guard.ensure_held().unwrap();
    }
    server.command(&["CONFIG", "SET", "tracking-table-max-keys", "1000"]);
    server.command(&["FLUSHALL"]);
    for guard in &guards {
        assert_eq!(lost(guard, "FLUSHALL").await, LossReason::Stolen);
    }
}

#[tokio::test]
#[limit]
async fn ten_thousand_locks_survive_or_notice_a_flush_since_redis_7() {
    const COUNT: usize = 10_000;
    let server = RedisServer::start();
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
    eventually("all are tracked", || tracked(&server) == COUNT as u64).await;
    tokio::time::sleep(300 * MS).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    // First, a tenth of the locks, each by itself.
    let watch = Stopwatch::start();
    for name in names(COUNT / 10) {
        server.command(&["DEL", &name]);
    }
    for guard in &guards[..COUNT / 10] {
        assert_eq!(lost(guard, "DEL").await, LossReason::Stolen);
    }
    figure("push: 1,000 DELs until all are known", (watch.elapsed(), calls(&server, "mget")));
    server.command(&["CONFIG", "RESETSTAT"]);
    let watch = Stopwatch::start();
    server.command(&["FLUSHALL"]);
    for guard in &guards {
        assert_eq!(lost(guard, "FLUSHALL").await, LossReason::Stolen);
    }
    let messages = calls(&server, "mget") + calls(&server, "evalsha");
    figure("push: 10,000 locks know of a FLUSHALL, messages", (watch.elapsed(), messages));
    watch.assert_within(2 * SECOND, "10,000 locks and a FLUSHALL");
    // They were renewed in batches, however fast they are.
    assert!(messages <= 1_000, "{messages} messages");
    assert!(!exists(&server, "k0"));
    // The server ends after them. Ten thousand claims would look for it beside the other tests.
    drop(guards);
    locks.shutdown(20 * SECOND).await;
}
