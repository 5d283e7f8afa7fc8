//! Quorums of real servers: killed, stopped, restarted, cut off, shared with a foreign client.

use std::time::Duration;

use lock_core::{AnyBackend, LockErrorKind, LockManager, LossReason, Quorum, RedisStore, ReleaseOutcome};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, Stopwatch, limit};

use crate::quorum::{MS, SECOND};
use crate::support::{LONG, bounded, eventually, exists, figure};

/// A lease that renews every second.
const TTL: Duration = Duration::from_secs(3);

pub(crate) fn url_of(ports: &[u16], query: &str) -> String {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}{query}", hosts.join(","))
}

pub(crate) fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

fn ports(servers: &[RedisServer]) -> Vec<u16> {
    servers.iter().map(RedisServer::port).collect()
}

/// Begins a quorum, and connects to it.
pub(crate) async fn begin(servers: &[RedisServer], query: &str) -> LockManager {
    let url = url_of(&ports(servers), query);
    Quorum::new(&url).unwrap().init().await.unwrap();
    LockManager::connect(&url).await.unwrap()
}

#[tokio::test]
#[limit]
async fn a_server_does_not_vote_twice() {
    let servers = servers(2);
    let [one, two] = [servers[0].port(), servers[1].port()];
    let twice = format!("redlock://127.0.0.1:{one},localhost:{one},127.0.0.1:{two}");
    let error = LockManager::connect(&twice).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{one} and localhost:{one} have the same data")), "{error}");
    // Nor for a caller who has not asked whether the quorum is there.
    let unasked = LockManager::builder_for(&twice).unwrap().build().unwrap();
    assert_eq!(unasked.lock("k").with_wait(LONG).await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    assert!(!exists(&servers[0], "k") && !exists(&servers[1], "k"));
}

#[tokio::test]
#[limit]
async fn a_server_does_not_vote_twice_when_it_is_known_late() {
    let mut servers = servers(2);
    let (one, proxy) = (servers[0].port(), FaultProxy::start(servers[0].port()));
    let twice = url_of(&[one, proxy.port(), servers[1].port()], "?restarts=remember");
    servers[1].kill();
    // From no time to more than members have to say who they are: the second name then becomes known as it votes.
    for delay in [0, 20, 40, 60, 80, 120, 160] {
        proxy.delay(Direction::ToClient, delay * MS);
        let error = LockManager::connect(&twice).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{delay} ms: {error}");
        let locks = LockManager::builder_for(&twice).unwrap().build().unwrap();
        for _ in 0..3 {
            // A vote of the attempt before may arrive late, and hold the lock until it is given back.
            let Some(error) = locks.lock("k").with_ttl(TTL).try_acquire().await.map(|got| assert!(got.is_none())).err()
            else {
                continue;
            };
            let refused = matches!(error.kind(), LockErrorKind::Misconfigured | LockErrorKind::Unavailable);
            assert!(refused, "{delay} ms: {error}");
        }
    }
}

/// `PEXPIRE` does not look whose the lease is.
#[tokio::test]
#[limit]
async fn a_lease_that_somebody_left_at_a_member_ends_while_others_are_renewed() {
    let servers = servers(3);
    let locks = begin(&servers, "").await;
    let left = format!("{}|1700000000000|2000|elsewhere|1|there|k", "f".repeat(32));
    // On a busy machine the holder may lose its own lease: a majority must confirm it within 150 ms, each second.
    loop {
        assert_eq!(servers[2].command(&["SET", "k", &left, "PX", "2000"]), Reply::Text("OK".to_owned()));
        let guard = locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
        let given = || matches!(servers[2].command(&["GET", "k"]), Reply::Text(value) if value != left);
        let took =
            eventually("the member gives the lock to its holder", || given() || guard.ensure_held().is_err()).await;
        if guard.ensure_held().is_ok() {
            bounded("a lease of two seconds that was left at a member", took, TTL);
            break;
        }
    }
    eventually("nothing is left", || !servers.iter().any(|server| exists(server, "k"))).await;
}

#[tokio::test]
#[limit]
async fn two_of_five_may_die_and_three_may_not() {
    let mut servers = servers(5);
    let locks = begin(&servers, "").await;
    locks.lock("warm").await.unwrap().release().await.unwrap();
    servers[0].kill();
    servers[1].pause();
    for round in 0..3 {
        let watch = Stopwatch::start();
        let guard = locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
        // One limit of 150 ms, and the grant itself.
        bounded("acquired with one of five members killed and one stopped", watch.elapsed(), 200 * MS);
        watch.assert_within(SECOND, &format!("one limit of 150 ms, and room for this machine, round {round}"));
        guard.release().await.unwrap();
    }
    let guard = locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
    servers[2].pause();
    let refused = locks.lock("other").with_ttl(TTL).try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("3 of 5 members must"), "{refused}");
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), LossReason::Unreachable);
    // The member that went on has the refused lock back.
    eventually("given back", || !exists(&servers[3], "other") && !exists(&servers[4], "other")).await;
    servers[1].resume();
    servers[2].resume();
    locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_member_that_restarts_or_is_flushed_does_not_count_and_is_repaired() {
    let mut servers = servers(3);
    let locks = begin(&servers, "?max_ttl=4s").await;
    for round in 0..2 {
        let guard = locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
        if round == 0 {
            servers[0].restart();
        } else {
            servers[0].command(&["FLUSHALL"]);
        }
        let watch = Stopwatch::start();
        let repaired = eventually("the member has the claim again", || exists(&servers[0], "k")).await;
        bounded("a member that lost a claim had it again, ttl 3 s", repaired, TTL / 3);
        watch.assert_within(2 * SECOND, "a third of the ttl, and a connection");
        guard.ensure_held().unwrap();
        // A member that has just come back may not have been asked for it. It gets the claim with the next renewal.
        while !locks.sync("k").await.unwrap().is_in_sync() {
            tokio::time::sleep(20 * MS).await;
        }
        // With another member away, the majority would be one that may have forgotten.
        servers[1].pause();
        let name = format!("127.0.0.1:{} has begun with empty data", servers[0].port());
        // On a busy machine it may answer too late to say so.
        let refused = loop {
            let got = locks.lock("other").with_ttl(TTL).try_acquire().await.map(|got| assert!(got.is_none()));
            if let Some(refused) = got.err().filter(|refused| refused.to_string().contains(&name)) {
                break refused;
            }
        };
        assert!(refused.to_string().contains("lockctl quorum init"), "{refused}");
        // The lease goes on: the member was repaired, and counts for it.
        tokio::time::sleep(TTL).await;
        guard.ensure_held().unwrap();
        let watch = Stopwatch::start();
        locks.lock("other").with_ttl(TTL).with_wait(LONG).await.unwrap().release().await.unwrap();
        figure("until a member that lost its data counted, max_ttl 4 s, 3 s before", watch.elapsed());
        servers[1].resume();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn a_new_quorum_counts_once_it_is_begun() {
    let servers = servers(3);
    let url = url_of(&ports(&servers), "");
    let locks = LockManager::connect(&url).await.unwrap();
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("run `lockctl quorum init` once if the quorum is new"), "{refused}");
    Quorum::new(&url).unwrap().init().await.unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    let remembering = LockManager::connect(&url_of(&ports(&servers), "?restarts=remember")).await.unwrap();
    servers.iter().for_each(|server| drop(server.command(&["FLUSHALL"])));
    remembering.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_holder_that_is_cut_off_stops_before_another_begins() {
    let servers = servers(3);
    let other = begin(&servers, "").await;
    let proxies: Vec<FaultProxy> = servers.iter().map(|server| FaultProxy::start(server.port())).collect();
    // The same members, by the same names, through a network that breaks.
    let members = proxies.iter().zip(&servers).map(|(proxy, server)| {
        let store = RedisStore::new(&proxy.url()).unwrap();
        AnyBackend::new(store).named(format!("127.0.0.1:{}", server.port()))
    });
    let cut_off = LockManager::builder(Quorum::of(members).unwrap()).build().unwrap();
    let first = cut_off.lock("k").with_ttl(TTL).await.unwrap();
    for proxy in &proxies[..2] {
        proxy.black_hole(Direction::ToServer);
        proxy.black_hole(Direction::ToClient);
    }
    let second = other.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
    assert!(first.ensure_held().is_err(), "two holders");
    assert!(second.token() > first.token());
    assert_eq!(tokio::time::timeout(LONG, first.lost()).await.unwrap(), LossReason::Unreachable);
    // Later commands of the first claim have no effect.
    proxies.iter().for_each(FaultProxy::resume);
    drop(first);
    while !other.sync("k").await.unwrap().is_in_sync() {
        tokio::time::sleep(20 * MS).await;
    }
    second.ensure_held().unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_foreign_redlock_client_and_this_exclude_each_other() {
    let servers = servers(3);
    let ours = begin(&servers, "").await;
    let uris = servers.iter().map(RedisServer::url).collect();
    let foreign = rslock::LockManager::new(uris);
    for _ in 0..5 {
        let guard = ours.lock("k").await.unwrap();
        assert!(foreign.lock(b"k", TTL).await.is_err(), "the foreign client took a lock that we hold");
        guard.release().await.unwrap();
        let held = foreign.acquire(b"k", TTL).await.unwrap();
        let busy = ours.lock("k").try_acquire().await.unwrap();
        assert!(busy.is_none(), "we took a lock that the foreign client holds");
        assert_eq!(ours.holder("k").await.unwrap().unwrap().owner, None);
        held.release().await;
    }
    // Both at once, for a while: never both inside.
    let inside = std::sync::atomic::AtomicUsize::new(0);
    let enter = |who: &str| {
        let before = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(before, 0, "{who} is not alone");
    };
    let us = async {
        for _ in 0..20 {
            let guard = ours.lock("k").with_ttl(10 * SECOND).with_wait(LONG).await.unwrap();
            enter("our client");
            tokio::time::sleep(2 * MS).await;
            inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            guard.release().await.unwrap();
            tokio::time::sleep(20 * MS).await;
        }
    };
    let them = async {
        for _ in 0..20 {
            let Ok(held) = foreign.acquire(b"k", 10 * SECOND).await else { continue };
            enter("the foreign client");
            tokio::time::sleep(2 * MS).await;
            inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            held.release().await;
            tokio::time::sleep(20 * MS).await;
        }
    };
    tokio::join!(us, them);
}

#[tokio::test]
#[limit]
async fn what_is_wrong_with_a_member_is_said_when_connecting() {
    let mut first = servers(2);
    first.push(RedisServer::builder().with_password("s3cret").start());
    let all = ports(&first);
    let refused = LockManager::connect(&url_of(&all, "")).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    let said = refused.to_string();
    assert!(said.contains(&all[2].to_string()) && said.contains("asks for a password"), "{said}");
    // A member that is only away does not keep the majority from working, a majority that is away does.
    Quorum::new(&url_of(&all, "")).unwrap().init().await.unwrap_err();
    // Others: those before may remember the list of the process that was refused.
    let mut servers = servers(2);
    let [one, two] = [servers[0].port(), servers[1].port()];
    let dead = RedisServer::start();
    let gone = dead.port();
    drop(dead);
    LockManager::connect(&url_of(&[one, two, gone], "")).await.unwrap();
    servers[1].kill();
    let refused = LockManager::connect(&url_of(&[one, two, gone], "")).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable);
    for said in ["only 1 of 3 members answer, and 2 must", &two.to_string(), &gone.to_string()] {
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

#[tokio::test]
#[limit]
async fn members_that_hang_are_named_when_connecting_and_a_minority_keeps_nobody() {
    let servers = servers(3);
    drop(begin(&servers, "").await);
    let url = url_of(&ports(&servers), "");
    servers[2].pause();
    LockManager::connect(&url).await.unwrap().lock("k").with_wait(LONG).await.unwrap().release().await.unwrap();
    servers[1].pause();
    let refused = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable);
    for said in ["only 1 of 3 members answer, and 2 must", &format!("{}: it did not answer in time", servers[2].port())]
    {
        assert!(refused.to_string().contains(said), "{refused}");
    }
    servers[1].resume();
    servers[2].resume();
}

#[tokio::test]
#[limit]
async fn processes_with_lists_that_do_not_fit_are_refused() {
    let servers = servers(4);
    let all = ports(&servers);
    let locks = begin(&servers[..3], "").await;
    let refused = LockManager::connect(&url_of(&[all[0], all[1], all[3]], "")).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    assert!(refused.to_string().contains("add or remove one member at a time"), "{refused}");
    LockManager::connect(&url_of(&all, "")).await.unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_grant_takes_two_rounds_at_most() {
    let servers = servers(3);
    let locks = begin(&servers, "").await;
    locks.lock("warm").await.unwrap().release().await.unwrap();
    // A second round asks every member again: its script runs once more.
    let calls = |server: &RedisServer| -> u64 {
        let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
        let of = |name: &str| -> u64 {
            let line = stats.split("\r\n").find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
        };
        of("info") - 1
    };
    let before: u64 = servers.iter().map(calls).sum();
    for round in 0..50 {
        locks.lock(format!("k{round}")).await.unwrap().release().await.unwrap();
    }
    let votes = servers.iter().map(calls).sum::<u64>() - before - 3;
    figure("votes for 50 locks of a quorum of three, of which 150 are needed", votes);
    assert!((150..=300).contains(&votes), "never more than two rounds: {votes}");
}

/// The rules of `docs/operations/quorum.md`.
#[tokio::test]
#[limit]
async fn the_documented_permissions_are_enough_for_a_quorum_and_each_is_needed() {
    let rules = include_str!("../../../../stores/lock-redis/src/acl.txt").strip_prefix("ACL SETUSER app ").unwrap();
    let more = ["+hgetall", "~distributed-lock:birth", "~distributed-lock:members"];
    let operations =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/quorum.md")).unwrap();
    for rule in more {
        assert!(operations.contains(&format!("`{rule}`")), "{rule}");
    }
    for left_out in [None, Some(0), Some(1), Some(2)] {
        let servers = servers(3);
        let more = more.iter().enumerate().filter(|(at, _)| Some(*at) != left_out).map(|(_, rule)| *rule);
        let words: Vec<&str> =
            ["ACL", "SETUSER", "app"].into_iter().chain(rules.split_whitespace()).chain(more).collect();
        for server in &servers {
            assert_eq!(server.command(&words), Reply::Text("OK".to_owned()));
        }
        let url = url_of(&ports(&servers), "").replace("://", "://app:password@");
        let used = async {
            Quorum::new(&url)?.init().await?;
            let locks = LockManager::connect(&url).await?;
            let guard = locks.lock("lock:k").with_wait(LONG).await?;
            assert!(locks.sync("lock:k").await?.is_in_sync());
            guard.extend(45 * SECOND).await?;
            guard.release().await
        };
        match (used.await, left_out) {
            (Ok(released), None) => assert_eq!(released, ReleaseOutcome::Released),
            (Err(error), Some(_)) => {
                assert!(error.to_string().contains("docs/operations.md#permissions lists"), "{error}");
            }
            (used, _) => panic!("{left_out:?}: {used:?}"),
        }
    }
}

#[tokio::test]
#[limit]
async fn a_member_that_lacks_our_user_is_named_and_the_others_are_enough() {
    let guarded = || RedisServer::builder().with_password("s3cret").start();
    let servers = [guarded(), RedisServer::start(), RedisServer::start()];
    let url = url_of(&ports(&servers), "?restarts=remember");
    // A member that is slow may not have answered by then: if it is the guarded one, the others are enough to connect.
    let refused = loop {
        if let Err(refused) = LockManager::connect(&url).await
            && refused.to_string().ends_with("; other members of the quorum accept this user, so correct this member")
        {
            break refused;
        }
    };
    let locks = LockManager::builder(Quorum::new(&url).unwrap()).build().unwrap();
    let guard = locks.lock("k").with_ttl(TTL).with_wait(LONG).await.unwrap();
    // Nor may it have had the time to refuse.
    let error = loop {
        let error = locks.sync("k").await.unwrap().nodes.remove(0).answer.unwrap_err();
        match error.kind() {
            LockErrorKind::Unavailable => {}
            _ => break error,
        }
    };
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    let name = format!("127.0.0.1:{}", servers[0].port());
    for error in [&error, &refused] {
        assert!(error.to_string().contains(&name) && error.to_string().contains("put it into the URL"), "{error}");
    }
    drop(guard);

    let servers = [guarded(), guarded(), RedisServer::start()];
    let url = url_of(&ports(&servers), "?restarts=remember");
    let locks = LockManager::builder(Quorum::new(&url).unwrap()).build().unwrap();
    // An attempt has half a second, and may end before both have refused.
    let error = loop {
        let error = locks.lock("k").with_ttl(TTL).try_acquire().await.unwrap_err();
        match error.kind() {
            LockErrorKind::Unavailable => {}
            _ => break error,
        }
    };
    let names = |server: &RedisServer| error.to_string().contains(&format!("127.0.0.1:{}", server.port()));
    assert!(servers[..2].iter().any(names) && error.to_string().contains("put it into the URL"), "{error}");
}

#[tokio::test]
#[limit]
async fn members_are_reached_over_ipv6() {
    let servers = [(); 3].map(|()| RedisServer::builder().with("bind", "127.0.0.1 ::1").start());
    let hosts: Vec<String> = servers.iter().map(|server| format!("[::1]:{}", server.port())).collect();
    let locks = LockManager::connect(&format!("redlock://{}?restarts=remember", hosts.join(","))).await.unwrap();
    let guard = locks.lock("k").with_wait(LONG).await.unwrap();
    assert!(locks.sync("k").await.unwrap().holder().is_some());
    guard.release().await.unwrap();
}
