//! Quorums of memory stores, on virtual time, behind networks that break, and of servers.

mod away;
#[cfg(target_os = "linux")]
mod clocks;
mod hangs;
mod health;
mod inspect;
mod jobs;
mod late;
mod losses;
mod marks;
mod members;
mod network;
mod reasons;
pub(crate) mod servers;
mod walk;

use std::time::Duration;

use lock_core::{LockErrorKind, LockGuard, LockManager, LossReason, Restarts, Result};
use lock_testing::limit;

use crate::quorum::network::{Network, process, process_with, stores};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How long a member may take at a ttl of 6 s.
const PATIENCE: Duration = Duration::from_millis(250);

async fn take(locks: &LockManager) -> Result<LockGuard> {
    locks.lock("k").with_ttl(6 * SECOND).with_wait(5 * SECOND).await
}

#[tokio::test(start_paused = true)]
#[limit]
async fn two_of_five_members_may_be_away_or_silent() {
    for network in [Network::Refuses, Network::Swallows, Network::Mutes] {
        let stores = stores(5);
        let (one, two) = (process(&stores), process(&stores));
        one.set([1, 3], network);
        two.set([0, 4], network);
        let begun = tokio::time::Instant::now();
        let mut newest = None;
        for process in [&one, &two, &one, &two] {
            let guard = take(&process.locks).await.unwrap();
            assert!(Some(guard.token()) > newest, "{network:?}: {:?} after {newest:?}", guard.token());
            newest = Some(guard.token());
            guard.release().await.unwrap();
        }
        // Each may have to be asked again, since the silent members still have the lock of the other process.
        assert!(begun.elapsed() <= 8 * PATIENCE, "{network:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn without_a_majority_nothing_is_granted_and_nothing_stays() {
    for network in [Network::Refuses, Network::Swallows, Network::Mutes] {
        let stores = stores(5);
        let process = process(&stores);
        process.set(0..3, network);
        let refused = process.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
        for said in ["3 of 5 members must", "a: ", "b: ", "c: "] {
            let text = refused.to_string().replace(" did not", ": did not");
            assert!(text.contains(said), "{said} is not in: {text}");
        }
        // The members that did grant have the lock back already, the others when they can be told.
        assert!(stores[3..].iter().all(lock_core::MemoryStore::is_empty), "{network:?}");
        process.set(0..3, Network::Up);
        tokio::time::sleep(5 * SECOND).await;
        assert!(stores.iter().all(lock_core::MemoryStore::is_empty), "{network:?}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_holder_that_loses_its_majority_stops_at_its_deadline() {
    let stores = stores(4);
    let (one, two) = (process(&stores), process(&stores));
    let guard = take(&one.locks).await.unwrap();
    one.set([2, 3], Network::Swallows);
    two.set([0, 1], Network::Swallows);
    let begun = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
    // Two of four are not a majority.
    let refused = [&one, &two].map(|process| process.locks.lock("k").with_ttl(6 * SECOND).try_acquire());
    for refused in refused {
        assert_eq!(refused.await.unwrap_err().kind(), LockErrorKind::Unavailable);
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_lost_its_data_does_not_count_until_every_lease_has_ended() {
    let stores = stores(3);
    let max_ttl = 12 * SECOND;
    let [one, two] = [(); 2].map(|()| process_with(&stores, |quorum| quorum.with_max_ttl(max_ttl).unwrap()));
    // The first holds the lock at a and b, the second reaches b and c: the majorities meet at b.
    one.set([2], Network::Refuses);
    two.set([0], Network::Refuses);
    let guard = one.locks.lock("k").with_ttl(6 * SECOND).await.unwrap();
    one.set([1], Network::Refuses);
    stores[1].lose_data();
    let lost_at = tokio::time::Instant::now();
    let refused = two.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("b has begun with empty data"), "{refused}");
    assert!(guard.ensure_held().is_ok());
    let second = two.locks.lock("k").with_ttl(6 * SECOND).with_wait(60 * SECOND).await.unwrap();
    assert!(guard.ensure_held().is_err());
    assert!(second.token() > guard.token());
    assert!(lost_at.elapsed() >= max_ttl && lost_at.elapsed() < max_ttl + 4 * SECOND, "{:?}", lost_at.elapsed());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn members_that_remember_count_at_once() {
    let stores = stores(3);
    let process = process_with(&stores, |quorum| quorum.with_restarts(Restarts::Remember));
    stores.iter().for_each(lock_core::MemoryStore::lose_data);
    take(&process.locks).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_lost_the_claim_has_it_again_within_a_third_of_the_ttl() {
    let stores = stores(3);
    let (one, two) = (process(&stores), process(&stores));
    let guard = take(&one.locks).await.unwrap();
    stores[0].lose_data();
    assert!(!one.locks.sync("k").await.unwrap().is_in_sync());
    tokio::time::sleep(2 * SECOND + PATIENCE).await;
    assert!(one.locks.sync("k").await.unwrap().is_in_sync());
    // It counts for this lease: another member may go now.
    one.set([1], Network::Refuses);
    two.set([1], Network::Refuses);
    stores[1].lose_data();
    tokio::time::sleep(12 * SECOND).await;
    guard.ensure_held().unwrap();
    assert!(two.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_claim_that_is_released_is_not_given_again() {
    let stores = stores(3);
    let process = process(&stores);
    for pause in [0, 1, 3, 7] {
        let guard = process.locks.lock("k").with_ttl(3 * SECOND).await.unwrap();
        tokio::time::sleep(SECOND - pause * MS).await;
        // Just as the renewal finds that a member has lost it.
        stores[0].steal(guard.key());
        process.set([0], Network::Delays(3 * MS));
        tokio::time::sleep(5 * MS).await;
        guard.release().await.unwrap();
        process.set([0], Network::Up);
        tokio::time::sleep(SECOND).await;
        assert!(stores.iter().all(lock_core::MemoryStore::is_empty), "{pause}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn an_acquire_that_is_dropped_leaves_nothing_behind() {
    for polled_for in 0..12 {
        let stores = stores(3);
        let process = process(&stores);
        process.set([0], Network::Delays(2 * MS));
        process.set([1], Network::Delays(5 * MS));
        let acquire = process.locks.lock("k").with_ttl(6 * SECOND).acquire();
        let _ = tokio::time::timeout(polled_for * MS, acquire).await;
        tokio::time::sleep(3 * SECOND).await;
        assert!(stores.iter().all(lock_core::MemoryStore::is_empty), "{polled_for} ms");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn all_members_can_be_asked_for() {
    let stores = stores(3);
    let process = process_with(&stores, |quorum| quorum.with_majority(3).unwrap());
    take(&process.locks).await.unwrap().release().await.unwrap();
    process.set([2], Network::Refuses);
    let refused = process.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("3 of 3 members must"), "{refused}");
}
