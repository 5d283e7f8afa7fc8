//! Members that are away: what reads say, what releases cost, what a job does whose runs they forgot.

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, LockManager, MemoryStore, Restarts};
use lock_store::{AcquireRequest, Attempt, Claim, Release};
use lock_testing::limit;

use crate::quorum::network::{Network, process, process_with, stores, undriven};
use crate::quorum::{MS, PATIENCE, SECOND, take};

const AWAY: [Network; 3] = [Network::Refuses, Network::Swallows, Network::Mutes];

#[tokio::test(start_paused = true)]
#[limit]
async fn a_majority_says_who_holds_and_who_leads_while_a_member_hangs() {
    for network in AWAY {
        let stores = stores(3);
        let (one, two) = (process(&stores), process(&stores));
        let guard = take(&one.locks).await.unwrap();
        let leadership = one.locks.elect("billing").with_ttl(6 * SECOND).campaign().await.unwrap();
        two.set([1], network);
        let begun = tokio::time::Instant::now();
        assert!(two.locks.holder("k").await.unwrap().is_some(), "{network:?}");
        assert!(two.locks.holder("other").await.unwrap().is_none(), "{network:?}");
        let election = two.locks.elect("billing");
        assert!(election.leader().await.unwrap().is_some(), "{network:?}");
        assert!(election.observe().changed().await.unwrap().is_some(), "{network:?}");
        assert!(begun.elapsed() < PATIENCE, "{network:?}: {:?}", begun.elapsed());
        // No member is reported as gone while it answers.
        let mut observation = election.observe();
        observation.changed().await.unwrap();
        let other = tokio::time::timeout(20 * SECOND, observation.changed()).await;
        assert!(other.is_err(), "{network:?}: {other:?}");
        drop(leadership);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_no_majority_says_is_unknown_and_never_nobody() {
    for network in AWAY {
        let stores = stores(3);
        let (one, two) = (process(&stores), process(&stores));
        let guard = take(&one.locks).await.unwrap();
        // One member lost the lock, and the one that would decide is away.
        stores[0].steal(guard.key());
        two.set([1], network);
        let error = two.locks.holder("k").await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{network:?}: {error}");
        two.set([1, 2], network);
        two.locks.holder("k").await.unwrap_err();
        two.locks.last_run("k").await.unwrap_err();
        drop(guard);
    }
}

/// Takes and releases locks of so many names, ten milliseconds after one another.
async fn pairs(locks: &LockManager, count: u32) {
    for pair in 0..count {
        let guard = locks.lock(format!("k{pair}")).with_ttl(30 * SECOND).with_wait(5 * SECOND).await.unwrap();
        guard.release().await.unwrap();
        tokio::time::sleep(10 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_is_away_costs_a_few_commands_a_second_however_many_locks_are_released() {
    for network in [Network::LateVotes(MS), Network::Swallows, Network::Mutes, Network::Refuses] {
        let stores = stores(3);
        let process = process(&stores);
        pairs(&process.locks, 1).await;
        process.set([2], network);
        let before = process.networks[2].releases();
        pairs(&process.locks, 1000).await;
        tokio::time::sleep(5 * SECOND).await;
        let told = process.networks[2].releases() - before;
        // Hanging members: until the first has had its second. A member that answers only votes: all of them.
        let most = if matches!(network, Network::LateVotes(_)) { 2100 } else { 300 };
        assert!(told <= most, "{network:?}: told of 1,000 releases {told} times");
        process.set([2], Network::Up);
        tokio::time::sleep(2 * SECOND).await;
        assert!(stores[2].is_empty(), "{network:?}: {} stayed", stores[2].len());
        // It is asked again like the others.
        let votes = process.networks[2].votes();
        pairs(&process.locks, 10).await;
        assert_eq!(process.networks[2].votes() - votes, 10, "{network:?}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn an_acquire_says_within_its_own_time_which_members_did_not_answer() {
    for (ttl, wait) in [(30 * SECOND, 300 * MS), (30 * SECOND, 2 * SECOND), (SECOND, 150 * MS)] {
        let stores = stores(3);
        let process = process(&stores);
        process.set([1, 2], Network::Swallows);
        let begun = tokio::time::Instant::now();
        let error = process.locks.lock("k").with_ttl(ttl).with_wait(wait).await.unwrap_err();
        assert!(begun.elapsed() <= wait + 2 * MS, "{ttl:?} {wait:?}: {:?}", begun.elapsed());
        let text = error.to_string();
        assert!(!text.contains("released"), "{ttl:?} {wait:?}: {text}");
        for member in ["b", "c"] {
            let says = [" did not answer in time", ": it has not answered"].map(|says| format!("{member}{says}"));
            assert!(says.iter().any(|says| text.contains(says)), "{ttl:?} {wait:?}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn an_acquire_that_was_not_sent_says_so_and_not_only_what_became_of_the_release_before_it() {
    let stores = stores(3);
    let (quorum, networks) = undriven(&stores);
    let key = LockKey::new("k").unwrap();
    let [before, next] = [(); 2].map(|()| Claim::new(key.clone(), 6 * SECOND));
    let request = |claim: &Claim| AcquireRequest::new(claim.clone(), HolderInfo::new("h", 1, "s"));
    assert!(matches!(quorum.try_acquire(&request(&before)).await, Ok(Attempt::Granted { .. })));
    networks[1..].iter().for_each(|member| member.set(Network::Swallows));
    let error = quorum.requeue(&Release::new(before), &request(&next)).await.unwrap_err();
    assert!(error.to_string().contains("the lock was not requested"), "{error}");
}

/// Runs a job unless it ran within a minute.
async fn run(locks: &LockManager) -> Result<Option<()>, LockError> {
    let job = locks.lock("cron:report").with_ttl(6 * SECOND).at_most_every(60 * SECOND);
    job.run(async |_| Ok::<_, LockError>(())).await
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_job_does_not_run_twice_because_members_restarted_one_after_another() {
    let stores = stores(3);
    let [one, two] = [(); 2].map(|()| process_with(&stores, |quorum| quorum.with_max_ttl(6 * SECOND).unwrap()));
    assert!(run(&one.locks).await.unwrap().is_some());
    for store in &stores[..2] {
        store.lose_data();
        tokio::time::sleep(10 * SECOND).await;
    }
    assert!(run(&two.locks).await.unwrap().is_none(), "the third knows of the run, and the others do not count");
    // No other call has to wait for so long.
    take(&two.locks).await.unwrap().release().await.unwrap();
    stores[2].lose_data();
    tokio::time::sleep(10 * SECOND).await;
    let refused = run(&two.locks).await.unwrap_err();
    assert!(refused.to_string().contains("does not count for another"), "{refused}");
    tokio::time::sleep(60 * SECOND).await;
    assert!(run(&two.locks).await.unwrap().is_some(), "they remember the whole period again");
    assert!(run(&one.locks).await.unwrap().is_none());
    let remembering = process_with(&stores, |quorum| quorum.with_restarts(Restarts::Remember));
    stores.iter().for_each(MemoryStore::lose_data);
    assert!(run(&remembering.locks).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_keep_of_a_plain_lock_is_not_forgotten_either() {
    let stores = stores(3);
    let [one, two] = [(); 2].map(|()| process_with(&stores, |quorum| quorum.with_max_ttl(6 * SECOND).unwrap()));
    let keep = Duration::from_secs(60);
    let ask = |locks: &LockManager| locks.lock("k").with_ttl(6 * SECOND).with_min_hold(keep);
    ask(&one.locks).await.unwrap().release().await.unwrap();
    for store in &stores[..2] {
        store.lose_data();
        tokio::time::sleep(10 * SECOND).await;
    }
    assert!(ask(&two.locks).try_acquire().await.unwrap().is_none());
    tokio::time::sleep(keep).await;
    assert!(ask(&two.locks).try_acquire().await.unwrap().is_some());
}
