//! The requests of one process's sleeping claims leave together.

use std::collections::BTreeMap;

use lock_core::{LockGuard, LockManager};
use lock_testing::{RedisCluster, RedisServer, Stopwatch, limit};
use tokio::task::JoinSet;

use super::{age_queue, entries_of, now, scripts};
use crate::support::{LONG, SECOND, eventually, locks_at};

/// How often the server has written an entry: once for each place that is confirmed.
fn confirmed(server: &RedisServer) -> i64 {
    let counted = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_hset:calls=")?.split(',').next()?.parse::<i64>().ok();
    counted.text().lines().find_map(calls).unwrap_or(0)
}

/// The keys of the queue and the waiters of a lock.
fn beside(key: &str) -> [String; 2] {
    let before = if key.contains('{') { format!("{key}:@") } else { format!("{{{key}}}@") };
    [format!("{before}queue"), format!("{before}waiters")]
}

/// When the claim that waits for this lock last asked.
fn stamp(server: &RedisServer, key: &str) -> Option<String> {
    entries_of(server, &beside(key)[1]).first().map(|entry| entry[1].clone())
}

/// Locks that one manager holds, and for each of which another one waits.
async fn wait_for(keys: &[String], url: &str) -> (Vec<LockGuard>, JoinSet<Option<String>>) {
    let (holder, waiter): (LockManager, LockManager) = (locks_at(url), locks_at(url));
    let (mut guards, mut waiting) = (Vec::new(), JoinSet::new());
    for key in keys {
        guards.push(holder.lock(key.as_str()).with_ttl(LONG).await.unwrap());
    }
    for key in keys.iter().cloned() {
        let waiter = waiter.clone();
        waiting.spawn(async move {
            match waiter.lock(key.as_str()).with_wait(LONG).await {
                Ok(guard) => guard.release().await.map(|_| None).unwrap(),
                Err(_) => Some(key),
            }
        });
    }
    (guards, waiting)
}

/// Waits until the claims that wait for these locks of a server sleep.
async fn asleep(server: &RedisServer, keys: &[String]) {
    for key in keys {
        eventually("it waits", || stamp(server, key).is_some()).await;
        age_queue(server, &beside(key)[0]);
    }
    for key in keys {
        let sleeps = || entries_of(server, &beside(key)[1])[0][2].parse::<i64>().unwrap() > now(server);
        eventually("it sleeps", sleeps).await;
    }
}

/// All locks are released, and go to who waits for them. Returns those whose waits have ended with an error.
async fn served(guards: Vec<LockGuard>, waiting: JoinSet<Option<String>>) -> Vec<String> {
    let released = Stopwatch::start();
    for guard in guards {
        guard.release().await.unwrap();
    }
    let refused = waiting.join_all().await.into_iter().flatten().collect();
    released.assert_within(10 * SECOND, "the turns of those who slept");
    refused
}

/// How many scripts confirm how many places, in seconds in which each claim of a server asks once at least.
async fn counted(server: &RedisServer, keys: &[String]) -> [i64; 2] {
    let before = [scripts(server), confirmed(server)];
    let stamps: BTreeMap<_, _> = keys.iter().map(|key| (key, stamp(server, key))).collect();
    for (key, before) in &stamps {
        eventually("it asks again", || stamp(server, key) != *before).await;
    }
    tokio::time::sleep(3 * SECOND).await;
    [scripts(server) - before[0], confirmed(server) - before[1]]
}

#[tokio::test]
#[limit]
async fn the_places_of_one_process_are_confirmed_together() {
    let (server, keys) = (RedisServer::start(), (0..300).map(|at| format!("k{at}")).collect::<Vec<_>>());
    let (guards, waiting) = wait_for(&keys, &server.url()).await;
    asleep(&server, &keys).await;
    let [scripts, places] = counted(&server, &keys).await;
    println!("figure: {places} places of 300 waits, confirmed by {scripts} scripts");
    assert!(places >= 300 && scripts * 5 <= places, "{scripts} scripts for {places} places");
    assert_eq!(served(guards, waiting).await, [""; 0]);
}

/// Claims ask together that are due in the same tenth of a second. A busy machine needs seconds to put all of them to sleep, so they may
/// be due in each of a hundred such ticks. The slot has more than two claims for each.
#[tokio::test]
#[limit(180)]
async fn the_places_of_one_slot_are_confirmed_together() {
    let cluster = RedisCluster::start(2);
    let of_slot: Vec<String> = (0..240).map(|at| format!("{{tag}}{at}")).collect();
    let slot = cluster.masters()[0].command(&["CLUSTER", "KEYSLOT", "tag"]).int();
    let at = usize::from(slot >= 8192);
    // At the same master, and at the other one, each in a slot of its own.
    let elsewhere: Vec<String> = (0..10).map(|number| cluster.key_on(at, &format!("a{number}"))).collect();
    let away: Vec<String> = (0..10).map(|number| cluster.key_on(1 - at, &format!("b{number}"))).collect();
    let keys = [of_slot.clone(), elsewhere.clone(), away.clone()].concat();
    let (guards, waiting) = wait_for(&keys, &cluster.url()).await;
    let [here, there] = [&cluster.masters()[at], &cluster.masters()[1 - at]];
    asleep(here, &[of_slot.clone(), elsewhere.clone()].concat()).await;
    asleep(there, &away).await;
    let [scripts, places] = counted(here, &[of_slot, elsewhere].concat()).await;
    println!("figure: {places} places, 24 of 25 in one slot, confirmed by {scripts} scripts");
    // Each place elsewhere has a script of its own.
    assert!(places >= 250 && scripts * 2 <= places, "{scripts} scripts for {places} places");
    assert_eq!(served(guards, waiting).await, [""; 0]);
}

#[tokio::test]
#[limit]
async fn what_is_refused_to_one_of_them_is_refused_to_no_other() {
    let (server, keys) = (RedisServer::start(), (0..8).map(|at| format!("k{at}")).collect::<Vec<_>>());
    let (guards, waiting) = wait_for(&keys, &server.url()).await;
    asleep(&server, &keys).await;
    // From now on one key is out of bounds, one is of another type, one is somebody else's, one place is lost.
    server.command(&["DEL", &beside("k1")[1]]);
    server.command(&["SET", &beside("k1")[1], "text", "PX", "600000"]);
    server.command(&["SET", "k2", "somebody", "PX", "600000"]);
    server.command(&["DEL", &beside("k3")[0], &beside("k3")[1]]);
    server.command(&["ACL", "SETUSER", "default", "resetkeys", "~*[1-9]*", "~distributed-lock:clock"]);
    for _ in 0..2 {
        let before: Vec<_> = keys[2..].iter().map(|key| (key, stamp(&server, key))).collect();
        for (key, before) in before {
            let asks = || stamp(&server, key).is_some_and(|now| Some(now) != before);
            eventually("it goes on to confirm its place", asks).await;
        }
    }
    server.command(&["ACL", "SETUSER", "default", "allkeys"]);
    server.command(&["DEL", &beside("k1")[1], "k2"]);
    let mut refused = served(guards, waiting).await;
    refused.sort_unstable();
    assert_eq!(refused, ["k0", "k1"]);
}
