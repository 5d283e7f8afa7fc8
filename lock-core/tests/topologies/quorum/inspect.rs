//! A quorum for operators: what a majority holds is held, and a member that tells nothing costs the others nothing.

use std::collections::BTreeMap;

use lock_core::inspect::{EntryState, FleetReader, LockEntry, ScanOptions};
use lock_core::store::Freed;
use lock_core::{LockErrorKind, LockKey, LockManager, OwnerId};
use lock_testing::{RedisServer, Reply, Stopwatch, freeze, limit, thaw};

use crate::quorum::SECOND;
use crate::quorum::servers::{begin, servers, url_of};

fn key(key: &str) -> LockKey {
    LockKey::new(key).unwrap()
}

fn reader(servers: &[RedisServer]) -> FleetReader {
    let ports: Vec<u16> = servers.iter().map(RedisServer::port).collect();
    FleetReader::new(&url_of(&ports, "")).unwrap()
}

/// Takes a lock at one member, as a client of RedLock does that gets no further.
fn take_part(server: &RedisServer, key: &str) {
    assert_eq!(server.command(&["SET", key, "nonce", "PX", "600000"]), Reply::Text("OK".to_owned()));
}

/// Walks to the end. Returns the locks, which members were not read, and the error at the end.
async fn walk(
    fleet: &FleetReader,
    options: ScanOptions,
) -> (BTreeMap<String, LockEntry>, Vec<usize>, Option<lock_core::LockError>) {
    let mut scan = fleet.scan(options);
    let mut found = BTreeMap::new();
    let error = loop {
        match scan.next().await {
            Ok(Some(batch)) => found.extend(batch.into_iter().map(|entry| (entry.key.as_str().to_owned(), entry))),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let members = scan.members().unwrap().nodes.iter().enumerate();
    (found, members.filter(|(_, member)| member.answer.is_err()).map(|(at, _)| at).collect(), error)
}

fn states(found: &BTreeMap<String, LockEntry>) -> Vec<(&str, EntryState)> {
    found.iter().map(|(key, entry)| (key.as_str(), entry.state)).collect()
}

async fn hold(locks: &LockManager, key: &str) -> lock_core::LockGuard {
    locks.lock(key).with_site("shop::report").with_ttl(60 * SECOND).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_walk_says_what_a_majority_holds_and_who_was_silent() {
    let mut servers = servers(3);
    let locks = begin(&servers, "").await;
    let guard = hold(&locks, "held").await;
    take_part(&servers[1], "part");
    let fleet = reader(&servers);
    let with_parts = || ScanOptions::new().with_foreign_prefix("");
    let (found, silent, error) = walk(&fleet, with_parts()).await;
    assert_eq!(states(&found), [("held", EntryState::Held), ("part", EntryState::Minority)]);
    assert_eq!((silent, error), (vec![], None));
    let held = &found["held"];
    assert_eq!((held.holder.site(), held.waiters), ("shop::report", None), "{held:?}");
    assert!(fleet.entry(&key("free")).await.unwrap().is_none());
    let holders = async |name: &str| fleet.holders(&key(name)).await.map(|holders| holders.len());
    assert_eq!((holders("held").await, holders("part").await), (Ok(1), Ok(0)));

    freeze(servers[2].pid());
    let watch = Stopwatch::start();
    let (found, silent, error) = walk(&fleet, with_parts()).await;
    assert!(watch.elapsed() < 5 * SECOND, "{:?}", watch.elapsed());
    assert_eq!(states(&found), [("held", EntryState::Held), ("part", EntryState::Unknown)]);
    assert_eq!((silent, error), (vec![2], None));
    let entry = fleet.entry(&key("held")).await.unwrap().unwrap();
    let members = entry.members.as_ref().unwrap();
    assert_eq!((entry.state, members.known().count(), members.majority), (EntryState::Held, 2, 2));
    assert!(fleet.entry(&key("free")).await.unwrap().is_none(), "two of three say so");

    // One member cannot tell. An error is neither free nor held.
    servers[1].kill();
    let (found, silent, error) = walk(&fleet, with_parts()).await;
    assert_eq!(states(&found), [("held", EntryState::Unknown)]);
    assert_eq!((silent, error.unwrap().kind()), (vec![1, 2], LockErrorKind::Unavailable));
    let error = fleet.entry(&key("free")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("it is unknown whether the lock is free"), "{error}");
    assert_eq!(fleet.job(&key("free")).await.unwrap_err().kind(), LockErrorKind::Unavailable);
    assert_eq!(holders("held").await.unwrap_err().kind(), LockErrorKind::Unavailable);
    thaw(servers[2].pid());
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_member_that_refuses_is_named_and_the_others_decide() {
    let servers = servers(3);
    let locks = begin(&servers, "").await;
    let guard = hold(&locks, "held").await;
    for server in &servers {
        let rights = if server.port() == servers[0].port() { "-@all" } else { "+@all" };
        server.command(&["ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", rights, "+ping"]);
    }
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let fleet = FleetReader::new(&format!("redlock://reader:pw@{}", hosts.join(","))).unwrap();
    let (found, silent, error) = walk(&fleet, ScanOptions::new()).await;
    assert_eq!((states(&found), silent, error), (vec![("held", EntryState::Held)], vec![0], None));
    let members = fleet.members(guard.key()).await.unwrap().unwrap();
    let refuses = &members.nodes[0];
    let error = refuses.answer.as_ref().unwrap_err();
    assert_eq!((&*refuses.node, error.kind()), (&*hosts[0], LockErrorKind::Misconfigured), "{error}");
    // If a majority refuses, it is their error.
    servers[1].command(&["ACL", "SETUSER", "reader", "-@all", "+ping"]);
    let (_, silent, error) = walk(&fleet, ScanOptions::new()).await;
    assert_eq!((silent, error.unwrap().kind()), (vec![0, 1], LockErrorKind::Misconfigured));
}

/// The servers list their keys in different orders, so a walk that ends early has seen other keys at each.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_walk_that_ends_early_never_takes_a_held_lock_for_a_minority() {
    let servers = servers(3);
    let locks = begin(&servers, "").await;
    let mut guards = Vec::new();
    for number in 0..150 {
        guards.push(hold(&locks, &format!("held:{number}")).await);
    }
    for server in &servers {
        server.command(&["EVAL", "for i = 1, 3000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    }
    let fleet = reader(&servers);
    let (whole, ..) = walk(&fleet, ScanOptions::new()).await;
    assert_eq!(whole.len(), 150);
    let mut scan = fleet.scan(ScanOptions::new().with_max_keys(1_000));
    let mut found = Vec::new();
    while let Some(batch) = scan.next().await.unwrap() {
        found.extend(batch);
    }
    assert!(scan.is_truncated() && !found.is_empty() && found.len() < 150, "{}", found.len());
    assert!(found.iter().all(|entry| entry.state == EntryState::Held), "{found:?}");
    // Strings of other clients are counted once, and not once for each member.
    let mut scan = fleet.scan(ScanOptions::new());
    servers.iter().for_each(|server| take_part(server, "lock:legacy"));
    while scan.next().await.unwrap().is_some() {}
    assert_eq!(scan.left_out().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_lock_is_taken_away_while_a_minority_is_silent() {
    let mut servers = servers(3);
    let locks = begin(&servers, "").await;
    let fleet = reader(&servers);
    let guard = hold(&locks, "k").await;
    let owner = |entry: Option<LockEntry>| entry.unwrap().holder.owner.unwrap();
    let holder = owner(fleet.entry(guard.key()).await.unwrap());
    let release = async |owner: OwnerId| fleet.release(guard.key(), owner, "ana", "a test").await;
    assert_eq!(release(OwnerId::random()).await, Ok(Freed::NotHeld));
    guard.ensure_held().unwrap();
    freeze(servers[2].pid());
    assert_eq!(release(holder).await, Ok(Freed::Released));
    guard.lost().await;
    // So many are silent that they may be a majority that has it.
    servers[1].kill();
    let error = release(holder).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("may still have it"), "{error}");
    thaw(servers[2].pid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_owner_of_a_late_vote_at_one_member_does_not_hold_the_lock() {
    let servers = servers(3);
    let locks = begin(&servers, "").await;
    let fleet = reader(&servers);
    let guard = hold(&locks, "k").await;
    let old = fleet.entry(guard.key()).await.unwrap().unwrap().holder.owner.unwrap();
    let Reply::Text(vote) = servers[0].command(&["GET", "k"]) else { panic!("it has voted") };
    let release = async || fleet.release(&key("k"), old, "ana", "a test").await;
    assert_eq!(release().await, Ok(Freed::Released));
    guard.lost().await;
    let next = hold(&locks, "k").await;
    let arrives_late = || servers[0].command(&["SET", "k", &vote, "PX", "60000"]);
    arrives_late();
    assert_eq!(release().await, Ok(Freed::NotHeld));
    assert_eq!(servers[0].command(&["EXISTS", "k"]).int(), 0, "it is removed all the same");
    next.ensure_held().unwrap();
    // With a member that is silent, that vote may have been one of a majority.
    arrives_late();
    freeze(servers[2].pid());
    assert_eq!(release().await, Ok(Freed::Released));
    thaw(servers[2].pid());
}
