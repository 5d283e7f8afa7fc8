//! Quorums of servers of which some clocks are wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use lock_core::{FencingToken, LockManager, Quorum};
use lock_testing::{RedisServer, limit};

use crate::quorum::{MS, SECOND};
use crate::support::{LONG, Movable, eventually};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

impl Movable {
    /// Sets how far the clock is ahead of ours, in seconds, and waits until the server has read it.
    async fn lead_by(&self, seconds: i64) {
        self.set(seconds);
        let ours = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        eventually("the clock is set", || (self.time() - ours() - seconds).abs() < 30).await;
    }
}

fn url_of(members: &[Movable], query: &str) -> String {
    let hosts: Vec<String> = members.iter().map(|member| format!("127.0.0.1:{}", member.server.port())).collect();
    format!("redlock://{}{query}", hosts.join(","))
}

/// Starts members whose clocks are ahead by so many seconds.
async fn members(ahead: &[i64]) -> Vec<Movable> {
    let members: Vec<Movable> = ahead.iter().map(|_| Movable::start()).collect();
    for (member, ahead) in members.iter().zip(ahead) {
        member.lead_by(*ahead).await;
    }
    members
}

async fn take(locks: &LockManager, key: &str) -> FencingToken {
    let guard = locks.lock(key).with_ttl(6 * SECOND).with_wait(LONG).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

#[tokio::test]
#[limit(240)]
async fn a_minority_of_wrong_clocks_stops_nothing_and_is_in_no_token() {
    for ahead in [
        &[HOUR, 0, 0][..],
        &[-HOUR, 0, 0],
        &[0, DAY, 0],
        &[0, 0, -DAY],
        &[HOUR - 1, 0, 0],
        &[HOUR / 2, 0, 0],
        &[HOUR, 0, -HOUR],
        &[DAY, HOUR, 0, 0, 0],
        &[2 * HOUR, -DAY, 0, 0, 0],
    ] {
        let mut members = members(ahead).await;
        let url = url_of(&members, "");
        Quorum::new(&url).unwrap().init().await.unwrap();
        let locks = LockManager::connect(&url).await.unwrap();
        let mut newest = FencingToken::default();
        let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        for round in 0..5 {
            // Also by a process that knows no clock yet.
            let fresh = LockManager::connect(&url).await.unwrap();
            for locks in [&locks, &fresh] {
                let token = take(locks, "k").await;
                assert!(token > newest, "{ahead:?}, round {round}: {token} after {newest}");
                newest = token;
            }
            take(&locks, &format!("k{round}")).await;
        }
        // A token that is too far ahead for a clock that is behind needs both others, also one that is ahead.
        let right: Vec<usize> = (0..members.len()).filter(|member| ahead[*member] == 0).collect();
        let ms = newest.get() >> 20;
        let is_near = ms < now() + 60_000;
        assert!(is_near || right.len() <= members.len() / 2, "{ahead:?}: a token of {} s ahead", (ms - now()) / 1000);

        // The keys that were tried meanwhile are granted when the clocks are right, also by members whose clocks were wrong.
        for member in &members {
            member.lead_by(0).await;
        }
        let others = members.len() / 2;
        for member in right.iter().take(others) {
            members[*member].server.kill();
        }
        if right.len() > others {
            let token = take(&locks, "k").await;
            assert!(token > newest, "{ahead:?}: {token} after {newest}");
            take(&LockManager::builder(Quorum::new(&url).unwrap()).build().unwrap(), "k0").await;
        }
    }
}

#[tokio::test]
#[limit]
async fn a_member_whose_data_began_by_a_clock_that_was_ahead_counts_as_soon_as_others() {
    let mut members = members(&[0, 0, DAY]).await;
    let url = url_of(&members, "?max_ttl=4s");
    let locks = LockManager::connect(&url).await.unwrap();
    // Every member begins now: the quorum is new.
    locks.lock("k").with_ttl(3 * SECOND).try_acquire().await.unwrap_err();
    members[2].lead_by(0).await;
    locks.lock("k").with_ttl(3 * SECOND).with_wait(LONG).await.unwrap().release().await.unwrap();
    members[0].server.kill();
    locks.lock("k").with_ttl(3 * SECOND).with_wait(LONG).await.unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_list_that_was_remembered_by_a_clock_that_was_ahead_is_forgotten_like_others() {
    let members = members(&[0, 0, DAY, 0]).await;
    let query = "?max_ttl=1s&restarts=remember";
    drop(LockManager::connect(&url_of(&members[..3], query)).await.unwrap());
    members[2].lead_by(0).await;
    // Another in place of the first: it does not fit the old list.
    let ends = std::time::Instant::now() + LONG;
    while let Err(error) = LockManager::connect(&url_of(&members[1..], query)).await {
        assert!(std::time::Instant::now() < ends, "{error}");
        tokio::time::sleep(50 * MS).await;
    }
}

#[tokio::test]
#[limit]
async fn a_member_that_starts_again_from_an_old_snapshot_does_not_count_at_once() {
    let mut servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redlock://{}?max_ttl=20s", hosts.join(","));
    Quorum::new(&url).unwrap().init().await.unwrap();
    let locks = LockManager::connect(&url).await.unwrap();
    locks.lock("k").with_ttl(6 * SECOND).await.unwrap().release().await.unwrap();
    servers[0].command(&["SAVE"]);
    servers[0].restart();
    assert!(crate::support::exists(&servers[0], "distributed-lock:birth"), "it has not read the snapshot");
    servers[1].pause();
    let says = format!("{} has begun with empty data", hosts[0]);
    // On a busy machine it may answer too late to say so.
    loop {
        let refused = locks.lock("other").with_ttl(6 * SECOND).try_acquire().await.unwrap_err();
        if refused.to_string().contains(&says) {
            break;
        }
        tokio::time::sleep(20 * MS).await;
    }
    servers[1].resume();
}
