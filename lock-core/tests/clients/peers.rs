//! Mistakes of other lock libraries that no other file covers, one test for each.

use lock_core::{LossReason, ReleaseOutcome};
use lock_testing::{EventLog, FaultProxy, RedisServer, limit};

use crate::support::{
    LONG, MS, SECOND, all_told, eventually, exists, figure, locked_keys, locks, renewals, seed, take, warm, watched,
};

#[tokio::test]
#[limit]
async fn extending_a_lost_lock_does_not_create_it_again() {
    let server = RedisServer::start();
    let locks = locks(&server);
    for command in [&["DEL", "k"][..], &["FLUSHALL"]] {
        let guard = take(&locks, "k").await;
        server.command(command);
        let error = guard.extend(9 * SECOND).await.unwrap_err();
        assert_eq!(error.loss_reason(), Some(LossReason::Stolen), "{error}");
        assert!(!exists(&server, "k"));
        drop(guard);
    }
}

#[tokio::test]
#[limit]
async fn a_renewal_on_its_way_does_not_revive_a_released_lock() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut random = fastrand::Rng::with_seed(seed());
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let locks = locks.clone();
            // Around the moments of renewals.
            let hold = (196 + random.u32(0..8) + 200 * random.u32(0..2)) * MS;
            tokio::spawn(async move {
                let guard = watched(&locks, &format!("k{n}")).await.unwrap();
                tokio::time::sleep(hold).await;
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(locked_keys(&server), [""; 0]);
    tokio::time::sleep(200 * MS).await;
    assert_eq!(locked_keys(&server), [""; 0]);
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_watchdog_outlives_its_first_error() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    for _ in 0..3 {
        let failed = events.count("RenewFailed");
        // Repeated, because another reply may be the one that is lost.
        let fails = || {
            proxy.drop_replies(1);
            events.count("RenewFailed") > failed
        };
        eventually("a renewal fails", fails).await;
        proxy.resume();
        guard.ensure_held().unwrap();
        renewals(&events, 1).await;
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_release_that_met_an_error_is_repeated_until_it_is_answered() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let guard = locks.lock("k").with_ttl(LONG).await.unwrap();
    proxy.refuse(true);
    proxy.kill_connections();
    drop(guard);
    tokio::time::sleep(400 * MS).await;
    assert!(exists(&server, "k"), "nobody could be told");
    proxy.resume();
    let took = eventually("freed", || !exists(&server, "k")).await;
    figure("freed after the network came back, ttl 600 s", took);
}
