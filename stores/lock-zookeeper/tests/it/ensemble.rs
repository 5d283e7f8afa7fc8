//! Servers that fail. Every lock has at most one holder, and each caller is served again in time.

use std::time::Duration;

use lock_core::{LockManager, ReleaseOutcome};
use lock_testing::{EventLog, Stopwatch, limit};
use tokio::time::{sleep, timeout};

use crate::callers::Callers;
use crate::servers::{Pace, Servers};
use crate::support::{LONG, MS, SECOND, Scratch, eventually};

/// A session that outlasts a change of the leader.
const LASTING: &str = "/locks?session=20s";

/// A session that a change of the leader may end.
const SHORT: &str = "/locks?session=4s";

/// A URL for each of six callers.
fn urls(servers: &Servers) -> Vec<String> {
    [SHORT, LASTING].into_iter().cycle().take(6).map(|rest| servers.url(rest)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_leader_that_is_killed_costs_seconds_and_no_lock() {
    let Some(mut servers) = Servers::three(Pace::FAST) else { return };
    let scratch = Scratch::new();
    let holder = scratch.locks(&servers.url(LASTING));
    let guard = holder.lock("held throughout").await.unwrap();
    let callers = Callers::start(&urls(&servers), &scratch.history()).await;
    for _ in 0..2 {
        let leader = servers.leader();
        servers.kill(leader);
        callers.each_is_served(8 * SECOND, "each caller is served after the leader was killed").await;
        assert_eq!(guard.ensure_held(), Ok(()), "the session outlasts the change of the leader");
        servers.restart(leader);
        callers.each_is_served(8 * SECOND, "each caller is served after the server came back").await;
    }
    let turns = callers.finish().await;
    scratch.recorder().release(guard.key(), guard.token());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    holder.shutdown(5 * SECOND).await;
    println!("figure: turns while two leaders were killed: {turns}");
    scratch.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_leader_that_is_frozen_costs_seconds_and_no_second_holder() {
    let Some(servers) = Servers::three(Pace::FAST) else { return };
    let (scratch, leader) = (Scratch::new(), servers.leader());
    // A client notices a frozen server after two fifths of its session.
    let holder = scratch.locks(&servers.url_of((0..3).filter(|at| *at != leader), LASTING));
    let guard = holder.lock("held throughout").await.unwrap();
    let callers = Callers::start(&urls(&servers), &scratch.history()).await;
    servers.freeze(leader);
    callers.each_is_served(16 * SECOND, "each caller is served after the leader was frozen").await;
    assert_eq!(guard.ensure_held(), Ok(()), "the session outlasts the change of the leader");
    // It still takes itself for the leader when it wakes.
    servers.thaw(leader);
    callers.each_is_served(16 * SECOND, "each caller is served after the frozen leader woke").await;
    servers.follows(leader);
    callers.each_is_served(8 * SECOND, "each caller is served in the end").await;
    let turns = callers.finish().await;
    scratch.recorder().release(guard.key(), guard.token());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    holder.shutdown(5 * SECOND).await;
    println!("figure: turns while a leader was frozen: {turns}");
    scratch.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_server_that_is_killed_and_started_again_keeps_locks_and_raises_tokens() {
    let Some(mut servers) = Servers::one(Pace::PATIENT) else { return };
    let scratch = Scratch::new();
    // On a busy machine the server may need ten seconds to start.
    let url = servers.url("/locks?session=40s");
    let (locks, other) = (scratch.locks(&url), scratch.locks(&url));
    let guard = locks.lock("held").await.unwrap();
    let mut newest = guard.token();
    for _ in 0..3 {
        servers.kill(0);
        servers.restart(0);
        let passing = other.lock("passing").with_wait(16 * SECOND).await.unwrap();
        assert!(passing.token() > newest, "{} after {newest}", passing.token());
        assert!(other.lock("held").try_acquire().await.unwrap().is_none(), "it is held");
        newest = passing.token();
        scratch.recorder().release(passing.key(), passing.token());
        assert_eq!(passing.release().await, Ok(ReleaseOutcome::Released));
        assert_eq!(guard.ensure_held(), Ok(()));
    }
    scratch.recorder().release(guard.key(), guard.token());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    for locks in [locks, other] {
        locks.shutdown(5 * SECOND).await;
    }
    scratch.verdict();
}

/// How many cuts must fall while the lock is held.
const CUTS: u32 = 6;

/// The holder's session is on a follower that is cut off from its leader. The follower goes on answering reads and pings for
/// `syncLimit` ticks, while the leader ends the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_holder_on_a_follower_that_is_cut_off_ends_before_the_next_is_granted() {
    let Some(servers) = Servers::three(Pace::FAST) else { return };
    let (scratch, mut cuts) = (Scratch::new(), 0);
    for round in 0..5 * CUTS {
        let session = SECOND * (1 + round % 2);
        let holder = scratch.locks(&servers.url_of([2], &format!("/locks?session={}s", session.as_secs())));
        let next = scratch.locks(&servers.url_of([0, 1], LASTING));
        let events = EventLog::default();
        next.observe(events.clone());
        let guard = holder.lock("cut").await.unwrap();
        let waiting = tokio::spawn(async move { (next.lock("cut").await.unwrap(), next) });
        eventually("the next one waits", || events.count("Contended") > 0).await;
        // The cut falls between two renewals, each time elsewhere.
        sleep(session + session * round / 24).await;
        let watch = Stopwatch::start();
        servers.cut_off();
        // A machine that stood still has lost it before.
        let was_held = guard.ensure_held().is_ok();
        let (granted, next) = waiting.await.unwrap();
        assert!(guard.ensure_held().is_err(), "{session:?}: two hold it, {:?} after the cut", watch.elapsed());
        if was_held {
            cuts += 1;
            println!("figure: a session of {session:?} is cut off; the next is granted after {:?}", watch.elapsed());
            // A session ends at a tick of the leader, and its last touch may be a tick later than the cut.
            watch.assert_within(session + 2 * Pace::FAST.tick, "the next one is granted");
        }
        timeout(LONG, guard.lost()).await.unwrap();
        drop(guard);
        servers.heal();
        serves_again(&holder).await;
        assert_eq!(granted.ensure_held(), Ok(()));
        scratch.recorder().release(granted.key(), granted.token());
        assert_eq!(granted.release().await, Ok(ReleaseOutcome::Released));
        holder.shutdown(5 * SECOND).await;
        next.shutdown(5 * SECOND).await;
        if cuts == CUTS {
            break;
        }
    }
    assert_eq!(cuts, CUTS, "the machine stands still too often");
    scratch.verdict();
}

/// Takes another lock, as soon as its server serves again.
async fn serves_again(locks: &LockManager) {
    let begun = Stopwatch::start();
    loop {
        match locks.lock("another").with_wait(Duration::from_secs(5)).await {
            Ok(guard) => {
                guard.release().await.unwrap();
                return;
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        begun.assert_within(LONG, "the holder's store works again");
        sleep(20 * MS).await;
    }
}
