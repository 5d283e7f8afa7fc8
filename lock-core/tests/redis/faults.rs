//! Whole managers meet faults: lost replies, cut connections, forgetful and full servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::{LockErrorKind, LockManager, ReleaseOutcome};
use lock_testing::{Direction, EventLog, FaultProxy, RedisServer, Reply, Stopwatch, limit};

use crate::support::{
    LONG, MS, SECOND, all_told, eventually, exists, expired, figure, locked_keys, locks, locks_at, lost,
    nothing_is_left, pttl, renewals, take, warm, watched,
};

#[tokio::test]
#[limit]
async fn a_swallowed_reply_is_no_phantom_holder() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    for round in 0..20 {
        let key = format!("k{round}");
        proxy.drop_replies(1);
        let watch = Stopwatch::start();
        let guard = take(&locks, &key).await;
        // A caller that mistakes its own lock for another's waits for the end of a lease of 30 s.
        watch.assert_within(SECOND, "an acquire whose reply was lost");
        assert!(exists(&server, &key));
        // The reply of the release is lost as well, and the repeat finds nothing to free.
        proxy.drop_replies(1);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        assert!(!exists(&server, &key));
    }
    assert!(!events.names().contains(&"Contended"), "nobody else was there");
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_swallowed_reply_without_waiting_leaves_nothing_behind() {
    let server = RedisServer::start();
    for round in 0..10 {
        let proxy = FaultProxy::start(server.port());
        let locks = warm(&proxy.url()).await;
        let key = format!("k{round}");
        let error = loop {
            proxy.drop_replies(1);
            match locks.lock(key.as_str()).with_ttl(LONG).without_waiting().await {
                Err(error) => break error,
                // The lost reply was to the keeper.
                Ok(guard) => drop(guard.release().await.unwrap()),
            }
        };
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        // The acquire is undone at once, and again when the late command can no longer arrive.
        eventually("the refused acquire is undone", || !exists(&server, &key)).await;
    }
}

#[tokio::test]
#[limit]
async fn a_cut_at_every_byte_of_an_acquire_leaves_one_holder_and_no_orphan() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let length = |direction| {
        let (proxy, locks) = (&proxy, &locks);
        async move {
            let before = proxy.bytes(direction);
            let guard = take(locks, "length").await;
            let after = proxy.bytes(direction);
            guard.release().await.unwrap();
            usize::try_from(after - before).unwrap()
        }
    };
    let mut cuts = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in 0..length(direction).await {
            let key = format!("cut:{direction:?}:{bytes}");
            proxy.cut_after(direction, bytes);
            let guard = take(&locks, &key).await;
            assert!(exists(&server, &key), "{key}");
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "{key}");
            cuts += 1;
        }
    }
    figure("cuts inside of an acquire and its reply", cuts);
    assert!(cuts > 300, "{cuts}");
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_greeting_that_is_cut_at_any_byte_is_repeated() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    for bytes in (0..160).step_by(4) {
        let locks = locks_at(&proxy.url());
        proxy.cut_after(Direction::ToClient, bytes);
        let guard = locks.lock("k").await.unwrap_or_else(|error| panic!("cut after {bytes}: {error}"));
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn a_cut_at_every_byte_of_a_release_frees_the_key() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    for (direction, length) in [(Direction::ToServer, 200), (Direction::ToClient, 4)] {
        for bytes in (0..length).step_by(3) {
            let key = format!("cut:{direction:?}:{bytes}");
            let guard = take(&locks, &key).await;
            proxy.cut_after(direction, bytes);
            let released = guard.release().await;
            proxy.resume();
            assert_eq!(released, Ok(ReleaseOutcome::Released), "{key}");
            assert!(!exists(&server, &key), "{key}");
        }
    }
}

#[tokio::test]
#[limit]
async fn forgotten_scripts_are_not_felt() {
    let server = RedisServer::start();
    let (locks, events) = (locks(&server), EventLog::default());
    locks.observe(events.clone());
    let long = watched(&locks, "long").await.unwrap();
    let mut grants = 0;
    while events.count("Renewed") < 8 {
        server.command(&["SCRIPT", "FLUSH"]);
        let guard = take(&locks, "k").await;
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        grants += 1;
    }
    figure("grants between SCRIPT FLUSHes", grants);
    assert_eq!(long.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
#[limit]
async fn a_full_server_refuses_clearly_renews_and_releases() {
    let server = RedisServer::start();
    let (locks, events) = (locks(&server), EventLog::default());
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for request in [locks.lock("new").without_waiting(), locks.lock("new").with_wait(2 * SECOND)] {
        let error = request.await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("OOM") && error.to_string().contains("maxmemory"), "{error}");
    }
    renewals(&events, 3).await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
    // A waiter is served as soon as there is room.
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").await }
    });
    tokio::time::sleep(200 * MS).await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_server_that_is_down_refuses_the_connection_at_once() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill();
    let watch = Stopwatch::start();
    let error = LockManager::connect(&url).await.unwrap_err();
    watch.assert_within(SECOND, "a connection that is refused");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("check that the server runs"), "{error}");
}

#[tokio::test]
#[limit]
async fn a_server_that_does_not_answer_is_given_up_after_five_seconds() {
    let server = RedisServer::start();
    server.pause();
    let watch = Stopwatch::start();
    let error = LockManager::connect(&server.url()).await.unwrap_err();
    watch.assert_within(5 * SECOND, "a connection that is not answered");
    assert!(watch.elapsed() >= 5 * SECOND, "it gave up too early");
    server.resume();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not answer within"), "{error}");
}

#[tokio::test]
#[limit]
async fn connections_killed_all_the_time_stop_no_work() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let grants = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..8)
        .map(|task| {
            let (locks, grants) = (locks.clone(), Arc::clone(&grants));
            tokio::spawn(async move {
                for _ in 0..60 {
                    let guard = take(&locks, &format!("k{}", task % 3)).await;
                    grants.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(MS).await;
                    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
                }
            })
        })
        .collect();
    let mut kills = 0;
    let mut before = 0;
    while !workers.iter().all(tokio::task::JoinHandle::is_finished) {
        // On a busy machine 20 ms may not do for a new connection and one command.
        let now = grants.load(Ordering::Relaxed);
        if now > before || kills == 0 {
            kills += server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int();
            before = now;
        }
        tokio::time::sleep(20 * MS).await;
    }
    for worker in workers {
        worker.await.unwrap();
    }
    figure("connections killed during 480 grants", kills);
    assert!(kills > 0);
    nothing_is_left(&server).await;
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_slow_network_is_only_slow() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, 40 * MS);
    }
    let (locks, events) = (locks_at(&proxy.url()), EventLog::default());
    locks.observe(events.clone());
    let guard = watched(&locks, "k").await.unwrap();
    renewals(&events, 5).await;
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn the_lease_on_the_server_is_the_one_asked_for() {
    let server = RedisServer::start();
    let locks = locks(&server);
    for ttl in [20 * SECOND, 60_777 * MS, 24 * 3600 * SECOND] {
        let guard = locks.lock("k").with_ttl(ttl).with_renew(lock_core::Renew::Off).await.unwrap();
        let most = i64::try_from(ttl.as_millis()).unwrap();
        let left = pttl(&server, "k");
        assert!((most - 15_000..=most).contains(&left), "{left} of {ttl:?}");
        assert!(guard.remaining() < ttl, "believed for less than the server keeps it");
        drop(guard);
        eventually("freed", || !exists(&server, "k")).await;
    }
    assert_eq!(expired(&server), 0);
    // The shortest lease lasts neither less nor more than its ttl.
    let watch = Stopwatch::start();
    let short = locks.lock("k").with_ttl(50 * MS).with_renew(lock_core::Renew::Off).await.unwrap();
    assert!(pttl(&server, "k") <= 50);
    lost(&short).await;
    assert!(watch.elapsed() >= 45 * MS, "lost before its time");
    take(&locks, "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn an_evicted_key_is_noticed_and_followed_by_a_greater_token() {
    let server = RedisServer::builder().with_maxmemory("0", "allkeys-random").start();
    let locks = locks(&server);
    let guard = take(&locks, "k").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // A write makes the server evict; it fails once there is nothing left to evict.
    eventually("the lock is evicted", || {
        let _: Reply = server.command(&["SET", "x", "y"]);
        !exists(&server, "k") && !exists(&server, "{k}@queue")
    })
    .await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let next = take(&locks_at(&server.url()), "k").await;
    assert!(next.token() > guard.token());
    assert_eq!(lost(&guard).await, lock_core::LossReason::Stolen);
}
