//! One member that accepts connections and never answers, from each stage of its use on: the others do the work in time.

use std::future::Future;
use std::time::Duration;

use lock_core::LockManager;
use lock_testing::{Direction, EventLog, FaultProxy, limit};

use crate::quorum::SECOND;
use crate::quorum::servers::{servers, url_of};
use crate::support::{LONG, eventually, exists, figure, renewals};

const STAGES: [&str; 6] = ["connect", "acquire", "renew", "release", "read", "shut down"];

/// Far longer than any stage takes, and far shorter than a member that hangs would take.
const BOUND: Duration = Duration::from_secs(20);

/// Ends within the bound, whatever it answers: on a busy machine the others may be late too.
async fn in_time<T>(hangs_at: &str, stage: &str, work: impl Future<Output = T>) -> T {
    let begun = std::time::Instant::now();
    let done = tokio::time::timeout(BOUND, work).await;
    figure(&format!("a member hangs from {hangs_at} on: {stage}"), begun.elapsed());
    done.unwrap_or_else(|_| panic!("a member hangs from {hangs_at} on: {stage} has not ended within {BOUND:?}"))
}

#[tokio::test]
#[limit]
async fn a_member_that_hangs_from_any_stage_on_keeps_no_caller() {
    for hangs_at in STAGES {
        let servers = servers(3);
        let proxy = FaultProxy::start(servers[0].port());
        let url = url_of(&[proxy.port(), servers[1].port(), servers[2].port()], "?restarts=remember");
        let begin = |stage: &str| {
            if stage == hangs_at {
                proxy.black_hole(Direction::ToServer);
            }
        };
        begin("connect");
        let locks = in_time(hangs_at, "connect", LockManager::connect(&url)).await.unwrap();
        let events = EventLog::default();
        locks.observe(events.clone());
        begin("acquire");
        let acquire = |key: &'static str| locks.lock(key).with_ttl(3 * SECOND).with_wait(LONG).acquire();
        let guard = in_time(hangs_at, "acquire", acquire("k")).await.unwrap();
        begin("renew");
        in_time(hangs_at, "renew", renewals(&events, 2)).await;
        begin("release");
        let _ = in_time(hangs_at, "release", guard.release()).await;
        drop(in_time(hangs_at, "acquire again", acquire("k")).await.unwrap());
        begin("read");
        let _ = in_time(hangs_at, "ask for the holder", locks.holder("k")).await;
        let _ = in_time(hangs_at, "ask for the last run", locks.last_run("k")).await;
        let _ = in_time(hangs_at, "ping", locks.ping()).await;
        let report = in_time(hangs_at, "ask all members", locks.sync("k")).await.unwrap();
        assert_eq!(report.nodes.len(), 3);
        begin("shut down");
        let report = in_time(hangs_at, "shut down", locks.shutdown(BOUND / 2)).await;
        assert!(report.is_clean(), "a member hangs from {hangs_at} on: {report:?}");
    }
}

/// Its release is still on its way when the caller has its answer, and the process shuts down.
#[tokio::test]
#[limit]
async fn a_shutdown_right_after_a_release_has_told_a_slow_member() {
    let servers = servers(3);
    let proxy = FaultProxy::start(servers[2].port());
    let url = url_of(&[servers[0].port(), servers[1].port(), proxy.port()], "?restarts=remember");
    for drains in [false, true] {
        let locks = LockManager::connect(&url).await.unwrap();
        let guard = locks.lock("k").with_ttl(30 * SECOND).with_wait(LONG).await.unwrap();
        eventually("all have voted", || exists(&servers[2], "k")).await;
        proxy.delay(Direction::ToServer, SECOND * 3 / 10);
        guard.release().await.unwrap();
        figure("the slow member was still to hear of it", exists(&servers[2], "k"));
        let report = if drains { locks.drain(BOUND).await } else { locks.shutdown(BOUND).await };
        assert!(report.is_clean(), "{report:?}");
        assert!(!exists(&servers[2], "k"), "the slow member keeps it until its lease ends");
        proxy.resume();
    }
}
