//! How locks are shared, and which jobs are overdue.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_metrics::builder;
use lock_testing::{RedisServer, limit};

use super::{held_as, inspector, of, scrape};

#[tokio::test]
#[limit]
async fn locks_are_counted_by_mode() {
    let server = RedisServer::start();
    let (one, two) =
        (LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap());
    let writer = one.write("price:1").with_label("price").acquire().await.unwrap();
    let readers = [
        one.read("price:2").with_label("price").acquire().await.unwrap(),
        two.read("price:2").with_label("price").acquire().await.unwrap(),
        one.read("price:3").with_label("price").acquire().await.unwrap(),
    ];
    let permit = one.semaphore("uploads", 4).with_label("uploads").with_weight(2).acquire().await.unwrap();
    let metrics = builder().build().unwrap();
    let inspector = inspector(&server);
    inspector.inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    let held = |lock, mode| held_as(&seen, lock, mode);
    assert_eq!((held("price", "write"), held("price", "read"), held("price", "permit")), (Some(1.0), Some(2.0), None));
    assert_eq!((held("uploads", "permit"), held("uploads", "write")), (Some(1.0), Some(0.0)), "{}", metrics.render());
    for guard in readers.into_iter().chain([writer, permit]) {
        guard.release().await.unwrap();
    }
    inspector.inspect_once(&metrics).await.unwrap();
    assert_eq!(held_as(&scrape(&metrics), "price", "write"), None, "one look remembers nothing");
}

#[tokio::test]
#[limit]
async fn a_job_that_does_not_run_is_overdue_until_it_does() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let hourly = locks.lock("cron:hourly").with_label("hourly").at_most_every(Duration::from_secs(3600));
    assert_eq!(hourly.run(async |_| Ok::<_, LockError>(())).await.unwrap(), Some(()));
    // As a run of two minutes ago left it, which should have come again after half a minute.
    let record = "local since = string.format('%d', redis.call('TIME')[1] * 1000 - 120000) \
                  local run = '30000|' .. since .. '|1|' .. since .. '|10000|web-1|7|shop::report|report' \
                  return redis.call('SET', KEYS[1], run)";
    server.command(&["EVAL", record, "1", "{cron:report}@job"]);
    let metrics = builder().build().unwrap();
    let inspector = inspector(&server);
    inspector.inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics);
    let late = of(&seen, "job_overdue_seconds", "report");
    assert!((90.0..300.0).contains(&late), "{late}");
    assert_eq!(seen.find("inspector_job_overdue_seconds", &[("lock", "hourly")]), Some(0.0));
    let report = locks.lock("cron:report").with_label("report").at_most_every(Duration::from_secs(3600));
    assert_eq!(report.run(async |_| Ok::<_, LockError>(())).await.unwrap(), Some(()));
    inspector.inspect_once(&metrics).await.unwrap();
    let seen = scrape(&metrics).find("inspector_job_overdue_seconds", &[("lock", "report")]);
    assert_eq!(seen, Some(0.0), "it has just run");
}
