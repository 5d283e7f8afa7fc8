//! What other lock libraries got wrong and no other file covers, one test for each.

use std::time::Duration;

use lock_core::testing::{Direction, EventLog, FaultProxy, RedisServer};
use lock_core::{LockErrorKind, LossReason, ReleaseOutcome, Renew};

use crate::support::{MS, SECOND, SLACK, eventually, exists, figure, locked_keys, locks, seed, take, warm};

#[tokio::test]
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
async fn a_grant_is_never_handed_over_after_its_lease() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let (mut granted, mut refused) = (0, 0);
    for delay in (0..160).step_by(8) {
        proxy.delay(Direction::ToServer, delay * MS / 2);
        proxy.delay(Direction::ToClient, delay * MS / 2);
        let request = locks.lock(format!("k{delay}")).with_ttl(120 * MS).with_renew(Renew::Off);
        match request.with_wait(400 * MS).await {
            Ok(guard) => {
                assert!(guard.remaining() > Duration::ZERO, "with {delay} ms of delay");
                guard.ensure_held().unwrap();
                granted += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
                refused += 1;
            }
        }
    }
    figure("leases of 120 ms over ever slower networks: granted and refused", (granted, refused));
    assert!(granted > 0 && refused > 0, "{granted} {refused}");
}

#[tokio::test]
async fn a_renewal_on_its_way_does_not_revive_a_released_lock() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut random = fastrand::Rng::with_seed(seed());
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let locks = locks.clone();
            // Around the moment of the first renewal.
            let hold = (328 + random.u32(0..12)) * MS;
            tokio::spawn(async move {
                let guard = take(&locks, &format!("k{n}")).await;
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
    events.assert_complete();
}

#[tokio::test]
async fn a_watchdog_outlives_its_first_error() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = take(&locks, "k").await;
    let count = |wanted: &str| events.names().iter().filter(|name| **name == wanted).count();
    for _ in 0..3 {
        let failed = count("RenewFailed");
        proxy.drop_replies(1);
        eventually("a renewal fails", SECOND, || count("RenewFailed") > failed).await;
        guard.ensure_held().unwrap();
        let renewed = count("Renewed");
        eventually("renewals go on", SECOND + SLACK, || count("Renewed") > renewed).await;
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    events.assert_complete();
}

#[tokio::test]
async fn a_release_that_met_an_error_is_repeated_until_it_is_answered() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let guard = locks.lock("k").with_ttl(30 * SECOND).await.unwrap();
    proxy.refuse(true);
    proxy.kill_connections();
    drop(guard);
    tokio::time::sleep(400 * MS).await;
    assert!(exists(&server, "k"), "nobody could be told");
    proxy.resume();
    let took = eventually("freed", 2 * SECOND, || !exists(&server, "k")).await;
    figure("freed after the network came back, ttl 30 s", took);
}
