//! Claims that share a lock hear of changes to it.

use lock_core::{LockRequest, LossReason};
use lock_testing::{EventLog, RedisServer, Stopwatch, limit};

use crate::support::{LONG, SECOND, eventually, locks, lost};

/// Readers and permits hear of it as a writer does, all that one process has.
#[tokio::test]
#[limit]
async fn who_shares_a_lock_hears_at_once_that_it_was_deleted_since_redis_7() {
    let server = RedisServer::start();
    let (here, there, events) = (locks(&server), locks(&server), EventLog::default());
    here.observe(events.clone());
    let long = |request: LockRequest| request.with_ttl(LONG);
    let reader = long(here.read("reads")).await.unwrap();
    let permits =
        [long(here.semaphore("permits", 4)).await.unwrap(), long(here.semaphore("permits", 4)).await.unwrap()];
    // The first look at each, from which on the server reports.
    eventually("all are looked at", || events.count("Renewed") >= 3).await;
    // Others come and go, which loses nobody anything. The look at that may come before they have gone.
    let looked = events.count("Renewed");
    for key in ["reads", "permits"] {
        long(there.semaphore(key, 4)).await.unwrap().release().await.unwrap();
    }
    for guard in permits.iter().chain([&reader]) {
        guard.ensure_held().unwrap();
    }
    eventually("what changed is looked at", || events.count("Renewed") > looked).await;
    let watch = Stopwatch::start();
    server.command(&["DEL", "reads", "permits"]);
    for guard in permits.iter().chain([&reader]) {
        assert_eq!(lost(guard).await, LossReason::Stolen);
    }
    watch.assert_within(3 * SECOND, "a lease of ten minutes is looked at long after");
}
