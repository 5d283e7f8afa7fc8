//! Late and partial messages: votes behind the release, a round of which some members take no part, a lock that is
//! taken away between two rounds, members whose clocks differ.

use lock_core::{HolderInfo, LockBackend, LockKey, MemoryStore};
use lock_store::{AcquireRequest, Claim, Release};
use lock_testing::limit;

use crate::quorum::network::{Network, Process, process, stores};
use crate::quorum::{MS, SECOND, take};

/// Has the members' clocks differ, so that no two give the same token.
fn differ(process: &Process) {
    for (member, ahead) in process.networks.iter().zip([0, 20, 40]) {
        member.lead_by(ahead * SECOND);
    }
}

async fn try_in_vain(process: &Process) {
    process.locks.lock("k").with_ttl(6 * SECOND).try_acquire().await.unwrap_err();
}

/// Takes a lock of the members as no process of the quorum does.
async fn take_at(store: &MemoryStore, claim: &Claim) {
    let request = AcquireRequest::new(claim.clone(), HolderInfo::new("elsewhere", 1, "s"));
    store.try_acquire(&request).await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_token_of_a_second_round_is_raised_at_a_majority_whose_clocks_differ() {
    let stores = stores(3);
    let (one, two) = (process(&stores), process(&stores));
    differ(&one);
    differ(&two);
    // The first knows the two that are ahead, the second those that are behind. Only one of them knows both.
    one.set([0], Network::Refuses);
    two.set([2], Network::Refuses);
    let first = take(&one.locks).await.unwrap();
    let before = first.token();
    first.release().await.unwrap();
    let after = take(&two.locks).await.unwrap().token();
    assert!(after > before, "{after} after {before}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lock_that_is_taken_away_between_two_rounds_is_not_entered_with_the_older_token() {
    let stores = stores(3);
    let (one, two) = (process(&stores), process(&stores));
    differ(&one);
    differ(&two);
    one.locks.ping().await.unwrap();
    one.set(0..3, Network::Delays(50 * MS));
    let slow = tokio::spawn(async move { take(&one.locks).await.unwrap().token() });
    // The first round has arrived, the second has not.
    tokio::time::sleep(75 * MS).await;
    let key = LockKey::new("k").unwrap();
    stores.iter().for_each(|store| store.steal(&key));
    let between = take(&two.locks).await.unwrap();
    let newest = between.token();
    between.release().await.unwrap();
    let late = slow.await.unwrap();
    assert!(late > newest, "entered with {late} after {newest}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_vote_that_is_executed_behind_the_release_is_undone() {
    for late in [100, 200, 300, 450] {
        let stores = stores(3);
        let process = process(&stores);
        take(&process.locks).await.unwrap().release().await.unwrap();
        process.set([2], Network::LateVotes(late * MS));
        take(&process.locks).await.unwrap().release().await.unwrap();
        tokio::time::sleep(2 * SECOND).await;
        assert!(stores[2].is_empty(), "a vote that came {late} ms late");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_shutdown_tells_late_members_that_the_claim_is_over() {
    for late in [1, 100, 200] {
        for drains in [false, true] {
            let stores = stores(3);
            let process = process(&stores);
            take(&process.locks).await.unwrap().release().await.unwrap();
            process.set([2], Network::LateVotes(late * MS));
            take(&process.locks).await.unwrap().release().await.unwrap();
            let within = 5 * SECOND;
            let report = if drains { process.locks.drain(within).await } else { process.locks.shutdown(within).await };
            assert!(report.is_clean(), "{report:?}");
            // The process may end here.
            process.set(0..3, Network::Swallows);
            tokio::time::sleep(SECOND).await;
            assert!(stores[2].is_empty(), "a vote that came {late} ms late, drained: {drains}");
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_shutdown_waits_hardly_for_a_member_that_is_away() {
    for network in [Network::Refuses, Network::Swallows, Network::Mutes] {
        let process = process(&stores(3));
        process.set([2], network);
        take(&process.locks).await.unwrap().release().await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(process.locks.shutdown(30 * SECOND).await.is_clean());
        assert!(begun.elapsed() <= 2 * SECOND, "{network:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_joined_and_did_not_answer_is_told_that_the_claim_is_over() {
    let stores = stores(3);
    let process = process(&stores);
    take(&process.locks).await.unwrap().release().await.unwrap();
    process.set([0, 1], Network::Refuses);
    process.set([2], Network::LateVotes(MS));
    try_in_vain(&process).await;
    tokio::time::sleep(SECOND).await;
    assert!(stores[2].is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_a_member_granted_in_the_first_round_is_given_back_if_the_second_ends_with_an_error() {
    let stores = stores(3);
    let process = process(&stores);
    differ(&process);
    process.set([0], Network::Refuses);
    process.set([1, 2], Network::OneVote);
    try_in_vain(&process).await;
    tokio::time::sleep(SECOND).await;
    assert!(stores.iter().all(MemoryStore::is_empty));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn somebody_who_only_tries_keeps_no_member_from_being_given_the_lock_again() {
    let stores = stores(3);
    let process = process(&stores);
    let guard = take(&process.locks).await.unwrap();
    let claims = [6, 600].map(|seconds| Claim::new(guard.key().clone(), seconds * SECOND));
    // One member is lost for good. Another has lost the lock, and somebody else has it there just as it is renewed.
    stores[2].steal(guard.key());
    take_at(&stores[2], &claims[1]).await;
    tokio::time::sleep(1_500 * MS).await;
    stores[0].steal(guard.key());
    take_at(&stores[0], &claims[0]).await;
    while process.networks[0].store.holder(guard.key()).await.unwrap().unwrap().owner == Some(claims[0].owner) {
        tokio::time::sleep(MS).await;
        if process.networks[0].votes() > 1 {
            stores[0].release(&Release::new(claims[0].clone())).await.unwrap();
            break;
        }
    }
    tokio::time::sleep(2 * SECOND).await;
    guard.ensure_held().unwrap();
    assert!(process.locks.sync("k").await.unwrap().holder().is_some());
}
