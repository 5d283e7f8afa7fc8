//! A process that is stopped for longer than its session lasts, and one that is killed.

use std::time::Duration;

use lock_core::ReleaseOutcome;
use lock_testing::{EventLog, Stopwatch, limit};
use tokio::time::sleep;

use crate::servers::{Pace, Servers};
use crate::support::{LONG, SECOND, Scratch, eventually};
use crate::worker::Worker;

const SESSION: Duration = Duration::from_secs(3);
const REST: &str = "/stopped?session=3s";

fn token(answer: &str) -> u64 {
    answer.parse().unwrap_or_else(|_| panic!("it was not granted: {answer}"))
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
