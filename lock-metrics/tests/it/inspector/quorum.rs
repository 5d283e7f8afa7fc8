//! The inspector of a quorum of real servers, of which one is frozen.

use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, Quorum};
use lock_metrics::{FleetInspector, builder};
use lock_testing::{RedisServer, freeze, limit, thaw};

use super::{held_as, last, of, scrape};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_quorum_is_inspected_like_one_server() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let hosts = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port()));
    // The election must not ask for a longer lease.
    let url = format!("redlock://{}?max_ttl=20s", hosts.join(","));
    Quorum::new(&url).unwrap().init().await.unwrap();
    let locks = LockManager::connect(&url).await.unwrap();
    let take = |key| locks.lock(key).with_label("user").with_ttl(Duration::from_secs(20)).acquire();
    let guards = [take("lock:user:1").await.unwrap(), take("lock:user:2").await.unwrap()];
    let hourly = locks.lock("cron:hourly").with_label("hourly").with_ttl(Duration::from_secs(20));
    let hourly = hourly.at_most_every(Duration::from_secs(3600));
    assert_eq!(hourly.run(async |_| Ok::<_, LockError>(())).await.unwrap(), Some(()));
    // A client of RedLock that got no further than one member holds nothing.
    servers[0].command(&["SET", "legacy:a", "nonce"]);
    freeze(servers[2].pid());

    let metrics = builder().build().unwrap();
    let inspector = FleetInspector::new(&url).unwrap().with_prefix("legacy:", "legacy").with_pause(Duration::ZERO);
    inspector.inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    assert_eq!((held_as(&seen, "user", "write"), held_as(&seen, "legacy", "write")), (Some(2.0), Some(0.0)));
    assert_eq!(of(&seen, "keys_without_ttl", "legacy"), 0.0);
    assert_eq!(seen.find("inspector_job_overdue_seconds", &[("lock", "hourly")]), Some(0.0));
    let start = of(&seen, "oldest_hold_start_timestamp_seconds", "user");
    let now = seen.get("inspector_last_success_timestamp_seconds", &[]);
    assert!(start > 1e9 && start < now + 1.0 && now - start < 60.0, "{start} {now}");
    // A quorum keeps no queue. Its waiters are unknown, and not none.
    assert_eq!(seen.find("inspector_waiters", &[("lock", "user")]), None, "{}", metrics.render());
    assert!(metrics.render().contains(&format!("store=\"{}\"", hosts.join(","))), "the name that its managers use");

    // One instance is elected, although one member is silent.
    let elected = inspector.clone().with_interval(Duration::from_millis(20)).start(&metrics).unwrap();
    let before = last(&metrics);
    eventually("a scan", || (last(&metrics) > before).then_some(()));
    elected.stop().await;
    // Without a majority nothing is known, and the earlier numbers stay.
    inspector.inspect_once(&metrics).await.unwrap();
    let before = last(&metrics);
    servers[1].kill();
    let error = inspector.inspect_once(&metrics).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(hosts[1..].iter().all(|host| error.to_string().contains(host)), "{error}");
    assert_eq!((last(&metrics), held_as(&scrape(&metrics), "user", "write")), (before, Some(2.0)));
    thaw(servers[2].pid());
    drop(guards);
}
