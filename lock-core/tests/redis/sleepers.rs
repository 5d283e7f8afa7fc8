//! Long waits: a claim that has waited for seconds sleeps, asks seldom, and is served nevertheless.

mod confirmation;
mod faults;
mod masters;
mod together;

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend, LockKey, LockManager, OwnerId, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Release, Ticket};
use lock_testing::{RedisServer, Reply, Stopwatch, limit};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{LONG, MS, SECOND, eventually, locks, take};

/// Server time, µs.
fn now(server: &RedisServer) -> i64 {
    let Reply::List(time) = server.command(&["TIME"]) else { panic!("no time") };
    time[0].text().parse::<i64>().unwrap() * 1_000_000 + time[1].text().parse::<i64>().unwrap()
}

fn words(server: &RedisServer, command: &[&str]) -> Vec<String> {
    let Reply::List(words) = server.command(command) else { panic!("{command:?}: no list") };
    words.iter().map(|word| word.text().to_owned()).collect()
}

/// The fields of each entry of `k`: inbox, stamp, confirmed, and so on.
fn entries(server: &RedisServer) -> Vec<Vec<String>> {
    entries_of(server, "{k}@waiters")
}

fn entries_of(server: &RedisServer, waiters: &str) -> Vec<Vec<String>> {
    let entries = words(server, &["HVALS", waiters]);
    let fields = entries.iter().map(|entry| entry.split('|').map(str::to_owned).collect::<Vec<_>>());
    // The note about foreign clients does not count.
    fields.filter(|fields| fields.len() > 2).collect()
}

/// The stamps of all claims.
fn stamps(server: &RedisServer) -> Vec<String> {
    let mut stamps: Vec<String> = entries(server).into_iter().map(|entry| entry[1].clone()).collect();
    stamps.sort_unstable();
    stamps
}

/// Makes everybody in the queue of `k` look as if it had come long ago.
fn age(server: &RedisServer) {
    age_queue(server, "{k}@queue");
}

fn age_queue(server: &RedisServer, queue: &str) {
    for pair in words(server, &["ZRANGE", queue, "0", "-1", "WITHSCORES"]).chunks(2) {
        let (score, long_ago) = (pair[1].parse::<f64>().unwrap(), now(server) as f64 - 1e9);
        if score > long_ago {
            server.command(&["ZADD", queue, "XX", &format!("{}", score - 2e9), &pair[0]]);
        }
    }
}

/// How many claims sleep that wait for `k`.
fn asleep(server: &RedisServer) -> usize {
    let now = now(server);
    entries(server).iter().filter(|entry| entry[2].parse::<i64>().unwrap() > now).count()
}

/// Waits until so many claims wait for `k`, and all sleep.
async fn all_asleep(server: &RedisServer, count: usize) {
    eventually("all wait", || entries(server).len() == count).await;
    age(server);
    eventually("all sleep", || asleep(server) == count).await;
}

/// How many scripts the server has executed.
fn scripts(server: &RedisServer) -> i64 {
    let counted = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        rest.split(',').next()?.parse::<i64>().ok()
    };
    counted.text().lines().filter_map(calls).sum()
}

/// A caller of a process of its own that waits for `k`, and gives its place in the order of grants.
fn wait_for_k(tasks: &mut JoinSet<usize>, locks: LockManager, name: usize) {
    tasks.spawn(async move {
        let guard = locks.lock("k").with_wait(LONG).await.unwrap();
        guard.release().await.unwrap();
        name
    });
}

/// Lets processes queue one after the other.
async fn queue_up(server: &RedisServer, tasks: &mut JoinSet<usize>, count: usize) {
    for name in 0..count {
        wait_for_k(tasks, locks(server), name);
        eventually("it queues", || entries(server).len() == name + 1).await;
    }
}

#[tokio::test]
#[limit]
async fn who_waits_for_long_asks_seldom() {
    const WAITERS: usize = 20;
    let server = RedisServer::start();
    let holder = locks(&server);
    let guard = holder.lock("k").with_ttl(LONG).await.unwrap();
    let mut tasks = JoinSet::new();
    queue_up(&server, &mut tasks, WAITERS).await;
    all_asleep(&server, WAITERS).await;
    let (before, measured) = (scripts(&server), Stopwatch::start());
    tokio::time::sleep(6 * SECOND).await;
    let asked = scripts(&server) - before;
    // Each asks after eight at the earliest, less a tick. Awake, each would ask every second.
    let most = WAITERS as f64 * (measured.elapsed().as_secs_f64() / 7.9).ceil();
    println!("figure: scripts of {WAITERS} processes that wait for one lock, in 6 s: {asked}");
    assert!((asked as f64) <= most, "{asked} scripts in {:?}", measured.elapsed());
    // They are served at once all the same, in the order in which they came.
    let released = Stopwatch::start();
    guard.release().await.unwrap();
    let mut order = Vec::new();
    while let Some(name) = tasks.join_next().await {
        order.push(name.unwrap());
    }
    released.assert_within(5 * SECOND, "the turns of those who slept");
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    assert_eq!(server.command(&["EXISTS", "k", "{k}@queue", "{k}@waiters"]), Reply::Int(0));
}

/// In a round without a stall: the one that waits asked more than two thirds of a grant ago, and asks again after eight.
#[tokio::test]
#[limit]
async fn a_grant_to_one_that_sleeps_is_confirmed_before_its_body_runs() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    loop {
        let (guard, two) = (take(&one, "k").await, two.clone());
        let next = tokio::spawn(async move { two.lock("k").await.unwrap() });
        all_asleep(&server, 1).await;
        let (before, mut asked) = (entries(&server), Instant::now());
        let seen = loop {
            let looked = Instant::now();
            if entries(&server) != before {
                break looked;
            }
            asked = looked;
            tokio::time::sleep(5 * MS).await;
        };
        tokio::time::sleep_until(asked + 2200 * MS).await;
        let token = guard.token();
        let released = Stopwatch::start();
        guard.release().await.unwrap();
        let slept = asked.elapsed() < 7 * SECOND && seen - asked < 100 * MS;
        let next = next.await.unwrap();
        if slept {
            released.assert_within(SECOND, "the turn of one that slept");
            // The lease is the whole one, which nothing but its own request could make of the three seconds of a grant.
            assert!(server.command(&["PTTL", "k"]).int() > 10_000);
            assert!(next.token() > token && next.remaining() > 10 * SECOND);
            return next.release().await.map(drop).unwrap();
        }
        next.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn the_further_back_the_more_seldom() {
    const CLAIMS: usize = 50;
    let server = RedisServer::start();
    let store = RedisStore::new(&server.url()).unwrap();
    let ask = |claim: &Claim| {
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("host", 1, "site"));
        let mut ticket = Ticket::new("nobody".into(), 1, 3 * SECOND);
        ticket.sleep = Some(10 * SECOND);
        (request.ticket, request.repeated) = (Some(ticket), true);
        request
    };
    let claims: Vec<Claim> = (0..CLAIMS).map(|_| Claim::new(LockKey::new("k").unwrap(), 30 * SECOND)).collect();
    let holder = Claim::new(LockKey::new("k").unwrap(), 30 * SECOND);
    let mut first = ask(&holder);
    first.ticket = None;
    assert!(matches!(store.try_acquire(&first).await, Ok(Attempt::Granted { .. })));
    for claim in &claims {
        // A claim that has just come stays awake.
        assert!(matches!(store.try_acquire(&ask(claim)).await, Ok(Attempt::Queued { .. })));
    }
    age(&server);
    let pause = async |claim: &Claim| match store.try_acquire(&ask(claim)).await {
        Ok(Attempt::Asleep { pause, .. }) => Some(pause),
        Ok(Attempt::Queued { .. }) => None,
        other => panic!("{other:?}"),
    };
    let mut pauses = Vec::new();
    for claim in &claims {
        pauses.push(pause(claim).await.unwrap());
    }
    assert_eq!(pauses[..20], [10 * SECOND; 20]);
    assert_eq!(pauses[20..24], [10_500 * MS, 11 * SECOND, 11_500 * MS, 12 * SECOND]);
    assert_eq!(pauses[CLAIMS - 1], 25 * SECOND);
    // The queue outlasts three of the longest pause, and each is gone after three of its own.
    assert!(server.command(&["PTTL", "{k}@queue"]).int() > 70_000);
    let last = entries(&server).iter().map(|entry| entry[2].parse::<i64>().unwrap()).max().unwrap();
    assert!((65_000_000..=75_000_000).contains(&(last - now(&server))), "{last}");
    // The claims that watch it ask when the holder's lease is due to end.
    server.command(&["PEXPIRE", "k", "2000"]);
    let soon = [pause(&claims[0]).await, pause(&claims[1]).await, pause(&claims[2]).await];
    assert!(soon[..2].iter().all(|pause| pause.is_some_and(|pause| pause <= 2 * SECOND)), "{soon:?}");
    assert_eq!(soon[2], Some(10 * SECOND));
    server.command(&["PEXPIRE", "k", "900"]);
    assert_eq!(pause(&claims[0]).await, None, "it asks as often as ever");
    // A lock without an end, and one that is foreign, are looked after by those two as ever.
    server.command(&["PERSIST", "k"]);
    assert_eq!((pause(&claims[1]).await, pause(&claims[2]).await), (None, Some(10 * SECOND)));
    server.command(&["SET", "k", "foreign", "PX", "60000"]);
    assert_eq!((pause(&claims[1]).await, pause(&claims[2]).await), (None, Some(10 * SECOND)));
    assert!(store.release(&Release::new(holder)).await.is_ok());
}

#[tokio::test]
#[limit]
async fn a_foreign_holder_is_polled_by_the_first_two_only() {
    let server = RedisServer::start();
    server.command(&["SET", "k", "foreign"]);
    let mut tasks = JoinSet::new();
    for name in 0..5 {
        wait_for_k(&mut tasks, locks(&server), name);
    }
    eventually("all wait", || entries(&server).len() == 5).await;
    age(&server);
    eventually("all but two sleep", || asleep(&server) == 3).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(asleep(&server), 3);
    let freed = Stopwatch::start();
    server.command(&["DEL", "k"]);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    freed.assert_within(5 * SECOND, "the turns of all");
}

#[tokio::test]
#[limit]
async fn who_holds_another_lock_stays_awake() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let guard = take(&one, "k").await;
    let next = tokio::spawn(async move {
        two.lock("other").run(async |_| two.lock("k").await.unwrap().release().await).await.unwrap();
    });
    eventually("it waits", || entries(&server).len() == 1).await;
    age(&server);
    let stamps = || entries(&server).first().map(|entry| entry[1].clone());
    for _ in 0..3 {
        let before = stamps();
        eventually("it asks again", || stamps() != before).await;
        assert_eq!(asleep(&server), 0);
    }
    guard.release().await.unwrap();
    next.await.unwrap();
}

/// As a store-level claim of nobody: the place of a claim that sleeps is kept, and its successor is woken.
#[tokio::test]
#[limit]
async fn whoever_is_to_watch_the_lock_from_now_on_is_woken() {
    let server = RedisServer::start();
    let holder = locks(&server);
    let guard = holder.lock("k").with_ttl(LONG).await.unwrap();
    let mut tasks = JoinSet::new();
    queue_up(&server, &mut tasks, 4).await;
    all_asleep(&server, 4).await;
    let stamps = || {
        let owners = words(&server, &["ZRANGE", "{k}@queue", "0", "-1"]);
        let stamp = |owner: &String| {
            server.command(&["HGET", "{k}@waiters", owner]).text().split('|').nth(1).unwrap().to_owned()
        };
        owners.iter().map(|owner| (owner.clone(), stamp(owner))).collect::<Vec<_>>()
    };
    let before = stamps();
    // The first is withdrawn, as by a caller that has gone.
    let first = OwnerId::from_hex(&before[0].0).unwrap();
    let mut gone = Claim::new(LockKey::new("k").unwrap(), SECOND);
    gone.owner = first;
    RedisStore::new(&server.url()).unwrap().withdraw(&gone).await.unwrap();
    let woken = Stopwatch::start();
    eventually("the third asks again", || {
        stamps().iter().any(|(owner, stamp)| *owner == before[2].0 && *stamp != before[2].1)
    })
    .await;
    woken.assert_within(2 * SECOND, "a place that became the second");
    let fourth = stamps().into_iter().find(|(owner, _)| *owner == before[3].0).unwrap();
    assert_eq!(fourth, before[3], "the fourth sleeps on");
    tokio::time::sleep(Duration::ZERO).await;
    guard.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
