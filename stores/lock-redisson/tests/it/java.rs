//! Beside Redisson itself, in both directions, with kills.

use std::time::Duration;

use lock_core::{LockManager, LossReason, ReleaseOutcome, Renew};
use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Stopwatch, limit};
use tokio::task::spawn_blocking;

use crate::redisson::Redisson;
use crate::support::{
    MS, PATIENCE, SECOND, began, eventually, exists, in_layout, listeners, locks, pttl, scripts, time,
};

/// How long Redisson's watchdog lets a lock live. It is not waited for unless a test says so.
const LONG: Duration = Duration::from_secs(60);

/// Far less than a waiter of either kind would sleep without a message.
const SOON: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn each_is_busy_for_the_other_and_a_release_wakes_the_other() {
    let server = RedisServer::start();
    let Some(redisson) = Redisson::start(&server.url(), LONG) else { return };
    both_ways(&server, &locks(&server.url()), redisson, "stock", "redisson_lock__channel:{stock}", false).await;
    let Some(redisson) = Redisson::start(&server.url(), LONG) else { return };
    both_ways(&server, &locks(&server.url()), redisson, "a:{b}", "redisson_lock__channel:a:{b}", false).await;
}

/// Passes a lock to and fro.
async fn both_ways(
    server: &RedisServer,
    locks: &LockManager,
    mut redisson: Redisson,
    key: &'static str,
    channel: &str,
    sharded: bool,
) {
    for _ in 0..3 {
        // Ours, and Redisson waits.
        let guard = locks.lock(key).await.unwrap();
        assert!(!redisson.acquires(key, Duration::ZERO), "it is held");
        let before = listeners(server, channel, sharded);
        redisson.send(&format!(r#"{{"acquire": "{key}", "wait_ms": 60000}}"#));
        eventually("Redisson listens", || listeners(server, channel, sharded) > before).await;
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let (back, answer) = spawn_blocking(move || {
            let answer = redisson.answer();
            (redisson, answer)
        })
        .await
        .unwrap();
        redisson = back;
        assert!(answer.contains(r#""acquired": true"#), "{answer}");
        watch.assert_within(SOON, "Redisson hears of our release");

        // Redisson's, and ours waits.
        assert!(locks.lock(key).try_acquire().await.unwrap().is_none());
        let (waiting, asked) = (locks.clone(), scripts(server));
        let waiting = tokio::spawn(async move { waiting.lock(key).with_wait(PATIENCE).await.unwrap() });
        eventually("ours waits", || scripts(server) > asked + 1 && listeners(server, channel, sharded) > 0).await;
        let watch = Stopwatch::start();
        assert!(redisson.releases());
        let guard = waiting.await.unwrap();
        watch.assert_within(SOON, "ours hears of Redisson's release");
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert!(!exists(server, key));
}

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn whoever_waits_for_a_holder_that_is_killed_gets_the_lock_when_its_lease_ends() {
    let server = RedisServer::start();
    let watchdog = 3 * SECOND;
    let Some(mut redisson) = Redisson::start(&server.url(), watchdog) else { return };
    let locks = locks(&server.url());
    assert!(redisson.acquires("k", Duration::ZERO));
    // Its watchdog renews it.
    eventually("it is renewed", || pttl(&server, "k") < 2_100).await;
    eventually("it is renewed", || pttl(&server, "k") > 2_500).await;
    redisson.kill();
    let watch = Stopwatch::start();
    let guard = locks.lock("k").await.unwrap();
    watch.assert_within(watchdog + SECOND, "the lease of a killed holder in Java");
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));

    // Ours is not renewed, as if its process were gone.
    let Some(mut redisson) = Redisson::start(&server.url(), LONG) else { return };
    let lost = locks.lock("k").with_ttl(2 * SECOND).with_renew(Renew::Off).await.unwrap();
    let watch = Stopwatch::start();
    let taken = spawn_blocking(move || redisson.acquires("k", 30 * SECOND).then_some(redisson)).await.unwrap();
    watch.assert_within(2 * SECOND + SOON, "the lease of a holder of ours");
    assert_eq!(lost.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)));
    let mut redisson = taken.expect("it is Redisson's now");
    assert!(redisson.does(r#"{"check": true}"#) && redisson.releases(), "our late release spares it");
}

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn a_busy_thread_in_java_has_no_old_hold_and_one_that_keeps_the_lock_has() {
    let server = RedisServer::start();
    // Each look must come before the lease ends that the look before it saw.
    let watchdog = 6 * SECOND;
    let Some(mut redisson) = Redisson::start(&server.url(), watchdog) else { return };
    let (locks, metrics) = (locks(&server.url()), lock_metrics::builder().build().unwrap());
    locks.observe(metrics.observer());
    // The same thread each time.
    for round in 0..6 {
        let before = time(&server);
        assert!(redisson.acquires("k", Duration::ZERO), "round {round}");
        let waiting = tokio::spawn(locks.lock("k").with_wait(PATIENCE).acquire());
        eventually("the hold is told", || began(&metrics).is_some_and(|began| began >= before)).await;
        assert!(redisson.releases());
        assert_eq!(waiting.await.unwrap().unwrap().release().await, Ok(ReleaseOutcome::Released));
    }
    assert!(redisson.acquires("k", Duration::ZERO));
    let waiting = tokio::spawn(locks.lock("k").with_wait(2 * PATIENCE).acquire());
    eventually("the hold is told", || began(&metrics).is_some()).await;
    let first = began(&metrics);
    // Its renewals do not begin the count anew.
    tokio::time::sleep(watchdog + SECOND).await;
    assert!(pttl(&server, "k") > 0, "its watchdog renews it");
    assert_eq!(began(&metrics), first);
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
#[limit(120)]
async fn each_can_take_the_lock_away_from_the_other_and_the_loser_learns_of_it() {
    let server = RedisServer::start();
    let Some(mut redisson) = Redisson::start(&server.url(), LONG) else { return };
    let locks = locks(&server.url());
    let guard = locks.lock("k").with_renew(Renew::Every(200 * MS)).await.unwrap();
    assert!(redisson.does(r#"{"force": "k"}"#));
    assert_eq!(tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap(), LossReason::Stolen);
    assert!(!exists(&server, "k"));

    assert!(redisson.acquires("k", Duration::ZERO) && redisson.does(r#"{"check": true}"#));
    let fleet = lock_core::inspect::FleetReader::new(&in_layout(&server.url())).unwrap();
    let entry = fleet.entry(guard.key()).await.unwrap().unwrap();
    assert_eq!(entry.holder.site(), "Redisson", "{entry:?}");
    let freed = fleet.release_foreign(&entry.key, &entry.foreign_value.unwrap(), "ana", "a test").await.unwrap();
    assert_eq!(freed, lock_core::store::Freed::Released);
    assert!(!redisson.does(r#"{"check": true}"#) && !redisson.releases(), "it is lost");
    drop(locks.lock("k").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
#[limit(180)]
async fn in_a_cluster_they_meet_on_the_sharded_channels_that_redisson_chooses() {
    let cluster = RedisCluster::start(3);
    let nodes: Vec<String> = cluster.masters().iter().map(RedisServer::url).collect();
    let Some(redisson) = Redisson::start(&nodes.join(","), LONG) else { return };
    let locks = locks(&format!("{}?redisson_publish=sharded", cluster.url()));
    let key: &'static str = cluster.key_on(1, "stock").leak();
    let channel = if key.contains('{') {
        format!("redisson_lock__channel:{key}")
    } else {
        format!("redisson_lock__channel:{{{key}}}")
    };
    both_ways(&cluster.masters()[1], &locks, redisson, key, &channel, true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[limit(180)]
async fn behind_sentinels_they_exclude_each_other_at_the_master() {
    let servers = RedisSentinels::builder().with_replicas(1).start();
    let master = servers.master().unwrap();
    let master = &servers.servers()[master];
    let Some(redisson) = Redisson::start(&master.url(), LONG) else { return };
    both_ways(master, &locks(&servers.url()), redisson, "stock", "redisson_lock__channel:{stock}", false).await;
}
