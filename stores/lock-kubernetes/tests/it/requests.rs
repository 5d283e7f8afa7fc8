//! What the API server pays: the requests for held locks, for waiters, and for thirty candidates at one time.

use std::time::Duration;

use lock_core::{LockManager, ReleaseOutcome};
use lock_testing::{Stopwatch, limit};
use tokio::task::JoinSet;

use crate::servers::ApiServer;
use crate::support::{LONG, MS, SECOND, locks, locks_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_held_lock_costs_one_update_each_third_of_its_ttl_and_a_waiter_its_announcement() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let (one, two) = (locks_for(&place.url(), 6 * SECOND), locks_for(&place.url(), 6 * SECOND));
    let guard = one.lock("counted").await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { two.lock("counted").await.unwrap() });
    tokio::time::sleep(3 * SECOND).await;
    let before = place.requests().len();
    let watch = Stopwatch::start();
    tokio::time::sleep(12 * SECOND).await;
    let seconds = watch.elapsed().as_secs_f64();
    let requests = place.requests().split_off(before);
    let updates = requests.iter().filter(|request| request.verb == "update").count();
    println!(
        "figure: in {seconds:.0} s a held lock and a waiter cost {} requests, {updates} of them updates",
        requests.len()
    );
    let due = seconds / 2.0;
    assert!(
        f64::from(u32::try_from(requests.len()).unwrap()) <= due + 2.0,
        "more than one for each third of the ttl: {requests:?}"
    );
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    waiting.join_next().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn thirty_candidates_get_their_turns_without_a_storm() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let candidates: Vec<LockManager> = (0..30).map(|_| locks(&place.url())).collect();
    let first = candidates[0].lock("storm").await.unwrap();
    let mut waiting = JoinSet::new();
    for locks in candidates {
        waiting.spawn(async move {
            let guard = locks.lock("storm").with_wait(LONG).await.unwrap();
            tokio::time::sleep(5 * MS).await;
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        });
    }
    // Each has announced itself.
    tokio::time::sleep(8 * SECOND).await;
    let before = place.requests().len();
    let watch = Stopwatch::start();
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap();
    }
    let took = watch.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let requests = place.requests().split_off(before);
    let conflicts = requests.iter().filter(|request| request.status == 409).count();
    println!("figure: 30 turns took {took:?} and {} requests, {conflicts} of them refused with 409", requests.len());
    // If all asked at each release, 435 would be in vain. Another candidate asks whenever a turn seems to be 50 ms late.
    let late = usize::try_from(took.as_millis() / 50).unwrap();
    assert!(conflicts <= 60 + 2 * late, "{conflicts} updates were in vain within {took:?}");
}
