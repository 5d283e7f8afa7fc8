//! Renewals do not queue behind other work: a command that hangs takes its connection with it, and costs no lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Durability, LockEvent, LockEventKind, LockGuard, LockManager, Renew, Wait};
use lock_testing::{Direction, EventLog, FaultProxy, RedisCluster, RedisSentinels, RedisServer, limit};

use crate::quorum::servers::{servers, url_of};
use crate::support::{LONG, MS, SECOND, eventually, figure, locks_at, renewals};

/// Sends a command to every server.
type TellAll = Box<dyn Fn(&[&str])>;

/// One store, through proxies, and around them.
struct Store {
    name: &'static str,
    url: String,
    direct: String,
    proxies: Vec<FaultProxy>,
    sentinels: Option<RedisSentinels>,
    /// Sends a command to each server, which it keeps alive.
    tell_all: TellAll,
}

impl Store {
    fn one(name: &'static str, denied: &str) -> Self {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", denied]);
        let proxy = FaultProxy::start(server.port());
        let url = |port: u16| format!("redis://app:secret@127.0.0.1:{port}");
        let (url, direct) = (url(proxy.port()), url(server.port()));
        Self {
            name,
            url,
            direct,
            proxies: vec![proxy],
            sentinels: None,
            tell_all: Box::new(move |words| drop(server.command(words))),
        }
    }

    fn quorum() -> Self {
        let servers = servers(3);
        let proxies: Vec<FaultProxy> = servers.iter().map(|server| FaultProxy::start(server.port())).collect();
        let ports: Vec<u16> = proxies.iter().map(FaultProxy::port).collect();
        // A quorum of other names would be another one.
        let [url, direct] = [(); 2].map(|()| url_of(&ports, "?restarts=remember"));
        Self {
            name: "quorum",
            url,
            direct,
            proxies,
            sentinels: None,
            tell_all: Box::new(move |words| servers.iter().for_each(|server| drop(server.command(words)))),
        }
    }

    fn cluster() -> Self {
        let cluster = RedisCluster::start(3);
        let proxies: Vec<FaultProxy> =
            cluster.masters().iter().map(|master| FaultProxy::start(master.port())).collect();
        let pair = |(proxy, master): (&FaultProxy, &RedisServer)| {
            format!("127.0.0.1:{}>127.0.0.1:{}", master.port(), proxy.port())
        };
        let nat: Vec<String> = proxies.iter().zip(cluster.masters()).map(pair).collect();
        let url = format!("redis+cluster://127.0.0.1:{}?nat={}", proxies[0].port(), nat.join(","));
        Self {
            name: "cluster",
            url,
            direct: cluster.url(),
            proxies,
            sentinels: None,
            tell_all: Box::new(move |words| cluster.masters().iter().for_each(|server| drop(server.command(words)))),
        }
    }

    fn sentinels() -> Self {
        let sentinels = RedisSentinels::builder().behind_a_proxy().start();
        let (url, direct) = (sentinels.url(), sentinels.direct_url());
        Self {
            name: "sentinels",
            url,
            direct,
            proxies: Vec::new(),
            sentinels: Some(sentinels),
            tell_all: Box::new(|_| {}),
        }
    }

    fn proxies(&self) -> impl Iterator<Item = &FaultProxy> {
        self.proxies.iter().chain(self.sentinels.as_ref().map(RedisSentinels::front))
    }
}

/// Counts the renewals of each lock.
fn count_renewals(locks: &LockManager) -> Arc<Mutex<HashMap<String, usize>>> {
    let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let count = Arc::clone(&counts);
    locks.observe(move |event: &LockEvent<'_>| {
        if matches!(event.kind, LockEventKind::Renewed { .. }) {
            *count.lock().unwrap().entry(event.key.to_string()).or_default() += 1;
        }
    });
    counts
}

/// Every connection of the process that carries background work hangs, again and again. Two locks with short leases are
/// renewed all the same.
async fn hangs(store: &Store) {
    let locks = LockManager::connect(&store.url).await.unwrap();
    let other = LockManager::connect(&store.direct).await.unwrap();
    let counts = count_renewals(&locks);
    let mut stuck: Vec<LockGuard> = Vec::new();
    for n in 0..8 {
        stuck.push(locks.lock(format!("{{a}}{n}stuck")).with_ttl(30 * SECOND).await.unwrap());
    }
    let _elsewhere = other.lock("{a}wait-stuck").with_ttl(30 * SECOND).await.unwrap();
    let waiting = locks.lock("{a}wait-stuck").with_wait(LONG).acquire();
    let waiting = tokio::spawn(async move { drop(waiting.await) });
    let short = |request: lock_core::LockRequest| request.with_ttl(3 * SECOND).with_renew(Renew::Every(300 * MS));
    let alone = short(locks.lock("{a}fine")).await.unwrap();
    // A quorum has no readers.
    let shared = if store.name == "quorum" { locks.lock("{a}shared") } else { locks.read("{a}shared") };
    let shared = short(shared).await.unwrap();
    // A release and a wait name the queue of their lock, and a renewal does not.
    store.proxies().for_each(|proxy| proxy.strand_at("stuck:@queue"));
    let renewed = |key: &str| counts.lock().unwrap().get(key).copied().unwrap_or(0);
    let before = ["{a}fine", "{a}shared"].map(renewed);
    for guard in stuck {
        drop(guard);
        tokio::time::sleep(Duration::from_millis(700)).await;
        for guard in [&alone, &shared] {
            guard.ensure_held().unwrap_or_else(|lost| panic!("{}: {} was lost: {lost}", store.name, guard.key()));
        }
    }
    eventually("both are renewed", || {
        for guard in [&alone, &shared] {
            guard.ensure_held().unwrap_or_else(|lost| panic!("{}: {} was lost: {lost}", store.name, guard.key()));
        }
        let now = ["{a}fine", "{a}shared"].map(renewed);
        now[0] >= before[0] + 10 && now[1] >= before[1] + 10
    })
    .await;
    let first = other.lock("{a}0stuck").with_wait(Wait::None).await;
    assert!(first.is_err(), "{}: its release came through", store.name);
    figure(&format!("renewed beside work that hangs, {}", store.name), ["{a}fine", "{a}shared"].map(renewed));
    waiting.abort();
}

/// The connections of other work end, and no new connection is let in, as when the server has too many clients.
#[tokio::test]
#[limit]
async fn renewals_since_redis_7_need_no_connection_of_other_work() {
    for store in [Store::one("one server", "+ping"), Store::cluster()] {
        let locks = LockManager::connect(&store.url).await.unwrap();
        let events = EventLog::default();
        locks.observe(events.clone());
        let guard = locks.lock("k").with_ttl(3 * SECOND).with_renew(Renew::Every(300 * MS)).await.unwrap();
        renewals(&events, 2).await;
        store.proxies().for_each(|proxy| proxy.refuse(true));
        (store.tell_all)(&["CLIENT", "KILL", "TYPE", "normal"]);
        let before = events.count("Renewed");
        eventually("it is renewed", || {
            guard.ensure_held().unwrap_or_else(|lost| panic!("{}: {lost}", store.name));
            events.count("Renewed") >= before + 15
        })
        .await;
    }
}

#[tokio::test]
#[limit]
async fn work_that_hangs_costs_no_lock_on_one_server() {
    for store in [Store::one("one server", "+ping"), Store::one("without tracking", "-client|tracking")] {
        hangs(&store).await;
    }
}

#[tokio::test]
#[limit]
async fn work_that_hangs_costs_no_lock_behind_sentinels() {
    hangs(&Store::sentinels()).await;
}

#[tokio::test]
#[limit]
async fn work_that_hangs_costs_no_lock_in_a_cluster() {
    hangs(&Store::cluster()).await;
}

#[tokio::test]
#[limit]
async fn work_that_hangs_costs_no_lock_in_a_quorum() {
    hangs(&Store::quorum()).await;
}

/// A master, with replicas that are reached through proxies.
async fn replicated(count: usize) -> (RedisServer, Vec<(FaultProxy, RedisServer)>) {
    let master = RedisServer::builder().with("repl-diskless-sync-delay", "0").start();
    let replica = |_| {
        let between = FaultProxy::start(master.port());
        let replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", between.port())).start();
        (between, replica)
    };
    let replicas: Vec<_> = (0..count).map(replica).collect();
    let online = || master.command(&["INFO", "replication"]).text().matches("state=online").count();
    eventually("all follow", || online() == count).await;
    (master, replicas)
}

fn cut(between: &FaultProxy) {
    between.black_hole(Direction::ToServer);
    between.black_hole(Direction::ToClient);
}

/// Locks that no replica confirms any more are lost. Others are renewed beside them, all the time.
async fn others_are_renewed(kept: Durability, lost: Durability, replicas: usize) {
    let (master, replicas) = replicated(replicas).await;
    let locks = locks_at(&master.url());
    let counts = count_renewals(&locks);
    let (mut others, mut gone) = (Vec::new(), Vec::new());
    for n in 0..10 {
        let short = |name: &str, ttl| locks.lock(format!("{name}{n}")).with_ttl(ttl).with_renew(Renew::Every(300 * MS));
        others.push(short("kept", 3 * SECOND).with_durability(kept).await.unwrap());
        gone.push(short("lost", 5 * SECOND).with_durability(lost).await.unwrap());
    }
    cut(&replicas[0].0);
    let renewed = |guard: &LockGuard| counts.lock().unwrap().get(guard.key().as_str()).copied().unwrap_or(0);
    let before: Vec<usize> = others.iter().map(renewed).collect();
    eventually("the others are lost, and these are renewed", || {
        for guard in &others {
            guard.ensure_held().unwrap_or_else(|error| panic!("{kept:?} beside {lost:?}: {error}"));
        }
        let renewed = others.iter().zip(&before).all(|(guard, before)| renewed(guard) >= before + 10);
        renewed && gone.iter().all(|guard| guard.ensure_held().is_err())
    })
    .await;
}

#[tokio::test]
#[limit]
async fn a_lock_that_no_replica_confirms_costs_no_other() {
    others_are_renewed(Durability::Master, Durability::Acks(1), 1).await;
}

#[tokio::test]
#[limit]
async fn a_lock_that_needs_two_replicas_costs_none_that_needs_one() {
    others_are_renewed(Durability::Acks(1), Durability::Acks(2), 2).await;
}
