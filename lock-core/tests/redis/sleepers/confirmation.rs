//! A grant that finds a claim asleep needs a confirmation. This tests its fate.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockGuard};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, Stopwatch, limit};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{all_asleep, entries};
use crate::support::{LONG, MS, SECOND, eventually, locks, nothing_is_left, take, warm};

/// Releases `k` when the one that sleeps behind it asked so long ago that too little is left of its grant, and it is not yet to ask
/// again. Returns whether it was so; a stall of the machine may come in between.
async fn release_into_its_sleep(server: &RedisServer, guard: LockGuard, fault: impl FnOnce()) -> bool {
    let (before, mut asked) = (entries(server), Instant::now());
    let seen = loop {
        let looked = Instant::now();
        if entries(server) != before {
            break looked;
        }
        asked = looked;
        tokio::time::sleep(5 * MS).await;
    };
    tokio::time::sleep_until(asked + 2200 * MS).await;
    fault();
    guard.release().await.unwrap();
    asked.elapsed() < 7 * SECOND && seen - asked < 100 * MS
}

/// A caller behind a proxy, which something befalls just before `k` is granted to it in its sleep.
async fn granted_in_its_sleep(
    server: &RedisServer,
    proxy: &FaultProxy,
    wait: Duration,
    fault: impl Fn(&FaultProxy),
) -> JoinHandle<Result<LockGuard, LockError>> {
    let (holder, sleeper) = (locks(server), warm(&proxy.url()).await);
    for _ in 0..10 {
        let (guard, locks) = (take(&holder, "k").await, sleeper.clone());
        let next = tokio::spawn(async move { locks.lock("k").with_wait(wait).await });
        all_asleep(server, 1).await;
        if release_into_its_sleep(server, guard, || fault(proxy)).await {
            return next;
        }
        proxy.resume();
        if let Ok(guard) = next.await.unwrap() {
            guard.release().await.unwrap();
        }
        nothing_is_left(server).await;
    }
    panic!("no release came in time");
}

#[tokio::test]
#[limit]
async fn a_confirmation_whose_answer_is_lost_is_sent_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let next = granted_in_its_sleep(&server, &proxy, LONG, |proxy| proxy.delay(Direction::ToServer, 300 * MS)).await;
    // It has heard of its grant, and its confirmation is on its way.
    proxy.drop_replies(1);
    let lost = Stopwatch::start();
    let guard = next.await.unwrap().unwrap();
    lost.assert_within(5 * SECOND, "the turn of one whose confirmation was lost");
    assert!(server.command(&["PTTL", "k"]).int() > 10_000, "it was confirmed");
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
#[limit]
async fn a_confirmation_that_comes_when_the_grant_is_over_lets_nobody_in() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let next = granted_in_its_sleep(&server, &proxy, LONG, |proxy| proxy.black_hole(Direction::ToServer)).await;
    assert!(!next.is_finished(), "it waits for the answer");
    let second = locks(&server).lock("k").with_wait(LONG).await.unwrap();
    proxy.resume();
    tokio::time::sleep(SECOND).await;
    second.ensure_held().unwrap();
    assert!(!next.is_finished(), "the lock has another holder");
    let token = second.token();
    second.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    assert!(guard.token() > token);
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
#[limit]
async fn a_confirmation_that_a_demoted_master_answers_lets_nobody_in() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let next = granted_in_its_sleep(&server, &proxy, LONG, |proxy| proxy.black_hole(Direction::ToServer)).await;
    // Its master cannot be reached, so it keeps its data.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    proxy.resume();
    tokio::time::sleep(SECOND).await;
    assert!(!next.is_finished(), "a replica confirms nothing");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let promoted = Stopwatch::start();
    let guard = next.await.unwrap().unwrap();
    promoted.assert_within(6 * SECOND, "the turn after the master is back");
    guard.ensure_held().unwrap();
    assert!(server.command(&["PTTL", "k"]).int() > 10_000, "it was confirmed");
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// The wait ends before the grant does.
#[tokio::test]
#[limit]
async fn a_time_out_while_it_is_granted_leaves_nothing_behind() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let next = granted_in_its_sleep(&server, &proxy, 7500 * MS, |proxy| proxy.black_hole(Direction::ToServer)).await;
    let granted = server.command(&["EXISTS", "k"]) == Reply::Int(1) && !next.is_finished();
    assert_eq!(next.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
    println!("figure: it was granted when its time was over: {granted}");
    proxy.resume();
    nothing_is_left(&server).await;
    take(&locks(&server), "k").await.release().await.unwrap();
    eventually("nobody waits", || entries(&server).is_empty()).await;
}
