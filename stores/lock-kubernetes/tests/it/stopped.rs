//! A process that is stopped for longer than its lease, and one that is killed.

use lock_core::ReleaseOutcome;
use lock_testing::{EventLog, Stopwatch, limit};
use tokio::time::sleep;

use crate::servers::ApiServer;
use crate::support::{SECOND, Scratch, eventually};
use crate::worker::Worker;

const KEY: &str = "stopped";

fn token(answer: &str) -> u64 {
    answer.parse().unwrap_or_else(|_| panic!("it was not granted: {answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn a_process_that_is_stopped_for_one_and_a_half_leases_has_lost_its_lock_when_it_wakes() {
    let Some(server) = ApiServer::shared() else { return };
    let (scratch, url, lease) = (Scratch::new(), server.namespace().url(), 3 * SECOND);
    let locks = scratch.locks(&url, lease);
    let mut worker = Worker::start(&format!("{url}#3"), &scratch.history());
    let events = EventLog::default();
    locks.observe(events.clone());
    for _ in 0..2 {
        let before = events.count("Contended");
        let first = token(&worker.order(&format!("acquire {KEY}")).await);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock(KEY).await.unwrap() }
        });
        eventually("one waits", || events.count("Contended") > before).await;
        let watch = Stopwatch::start();
        worker.stop();
        let guard = waiting.await.unwrap();
        println!("figure: the lock of a process that was stopped passes on after {:?}", watch.elapsed());
        watch.assert_within(lease + SECOND, "the lease of a stopped process ends");
        assert!(guard.token().get() > first);
        sleep((lease + lease / 2).saturating_sub(watch.elapsed())).await;
        let watch = Stopwatch::start();
        worker.resume();
        let told = worker.order("check").await;
        assert_ne!(told, "held", "its deadline has passed while it was stopped");
        watch.assert_within(SECOND, "a process that wakes knows of its loss");
        let answer = worker.order("release").await;
        assert!(answer.starts_with("AlreadyLost"), "{answer}");
        assert_eq!(guard.ensure_held(), Ok(()), "a late release spares the next holder");
        scratch.recorder().release(guard.key(), guard.token());
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    scratch.verdict();
}
