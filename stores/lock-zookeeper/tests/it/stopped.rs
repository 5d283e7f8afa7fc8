//! What a session promises, a process that is stopped for longer, and one that is killed.

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend as _, LockKey, ReleaseOutcome};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Renewal};
use lock_testing::{EventLog, Stopwatch, limit};
use lock_zookeeper::ZooKeeper;
use tokio::time::sleep;

use crate::servers::{Pace, Servers};
use crate::support::{LONG, SECOND, Scratch, eventually};
use crate::worker::Worker;

const SESSION: Duration = Duration::from_secs(3);
const REST: &str = "/stopped?session=3s";

fn token(answer: &str) -> u64 {
    answer.parse().unwrap_or_else(|_| panic!("it was not granted: {answer}"))
}

/// The leader may have heard of a session for the last time some time before it executed a write of the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_lock_is_promised_for_half_a_session_and_no_longer() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let store = ZooKeeper::new(&servers.url("/half?session=4s")).unwrap();
    for (ttl, lease) in [(LONG, Some(2 * SECOND)), (2 * SECOND, None)] {
        let claim = Claim::new(LockKey::new("k").unwrap(), ttl);
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
        request.execute_within = LONG;
        let attempt = store.try_acquire(&request).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted { lease: told, .. } if told == lease), "{ttl:?}: {attempt:?}");
        let renewal = store.renew(std::slice::from_ref(&claim)).await;
        assert_eq!(renewal, [Ok(lease.map_or(Renewal::Renewed, Renewal::RenewedFor))], "{ttl:?}");
        assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::Released));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_process_that_is_stopped_for_one_and_a_half_sessions_has_lost_its_lock_when_it_wakes() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let scratch = Scratch::new();
    let locks = scratch.locks(&servers.url(REST));
    let mut worker = Worker::start(&servers.url(REST), &scratch.history());
    let events = EventLog::default();
    locks.observe(events.clone());
    for _ in 0..3 {
        let before = events.count("Contended");
        let first = token(&worker.order("acquire k").await);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("k").await.unwrap() }
        });
        eventually("ours waits", || events.count("Contended") > before).await;
        let watch = Stopwatch::start();
        worker.stop();
        let guard = waiting.await.unwrap();
        println!("figure: the lock of a process that was stopped passes on after {:?}", watch.elapsed());
        watch.assert_within(SESSION + 2 * Pace::PATIENT.tick, "the session of a stopped process ends");
        assert!(guard.token().get() > first);
        sleep((SESSION + SESSION / 2).saturating_sub(watch.elapsed())).await;
        let watch = Stopwatch::start();
        worker.resume();
        let told = worker.order("check").await;
        assert_ne!(told, "held", "its deadline has passed while it was stopped");
        watch.assert_within(SECOND, "a process that wakes knows of its loss");
        let reason = worker.order("lost").await;
        println!("figure: it is told after {:?}: {told}, {reason}", watch.elapsed());
        let answer = worker.order("release").await;
        assert!(answer.starts_with("AlreadyLost"), "{answer}");
        assert_eq!(guard.ensure_held(), Ok(()), "a late release spares the next holder");
        let second = guard.token().get();
        scratch.recorder().release(guard.key(), guard.token());
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        // With a new session.
        assert!(token(&worker.order("acquire k").await) > second);
        assert_eq!(worker.order("release").await, "Released");
    }
    scratch.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn the_lock_of_a_process_that_is_killed_is_free_when_its_session_ends() {
    let Some(servers) = Servers::one(Pace::PATIENT) else { return };
    let scratch = Scratch::new();
    let locks = scratch.locks(&servers.url(REST));
    let mut worker = Worker::start(&servers.url(REST), &scratch.history());
    let first = token(&worker.order("acquire k").await);
    assert_eq!(worker.order("check").await, "held");
    let (watch, pid) = (Stopwatch::start(), worker.pid());
    worker.kill().await;
    scratch.recorder().killed(pid);
    let guard = tokio::time::timeout(LONG, locks.lock("k").acquire()).await.unwrap().unwrap();
    watch.assert_within(SESSION + 2 * Pace::PATIENT.tick, "the session of a killed process ends");
    assert!(guard.token().get() > first);
    scratch.recorder().release(guard.key(), guard.token());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    locks.shutdown(5 * SECOND).await;
    scratch.verdict();
}
