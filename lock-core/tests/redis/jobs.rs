//! Jobs on a real server.

use std::time::Duration;

use lock_core::{Job, LockError, LockManager};
use lock_testing::{RedisServer, limit};

use crate::support::{Worker, exists, locks, pttl};

const HOUR: Duration = Duration::from_secs(3600);

fn hourly(locks: &LockManager) -> Job {
    locks.lock("cron:report").at_most_every(HOUR)
}

async fn run(job: Job) -> Result<Option<()>, LockError> {
    job.run(async |_| Ok(())).await
}

/// By the server's own clock: what stays is an expiry of the whole period, less what has gone by.
#[tokio::test]
#[limit]
async fn a_server_keeps_the_key_for_the_period() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let kept = |key: &str| (3_540_000..=3_600_000).contains(&pttl(&server, key));
    assert_eq!(run(hourly(&locks)).await.unwrap(), Some(()));
    assert!(kept("cron:report"), "{}", pttl(&server, "cron:report"));
    assert_eq!(run(hourly(&locks)).await.unwrap(), None);
    let crashed = locks.lock("cron:crashed").at_most_every(HOUR).run_once_even_if_crashed();
    let during = crashed.run(async |_| Ok::<_, LockError>(kept("cron:crashed"))).await.unwrap();
    assert_eq!(during, Some(true), "the key is kept before the body has ended");
    assert!(kept("cron:crashed"));
    let failed = locks.lock("cron:failed").at_most_every(HOUR).retry_failed();
    failed.run(async |_| Err::<(), _>(LockError::unavailable("no"))).await.unwrap_err();
    assert!(!exists(&server, "cron:failed"));
}

/// On a server, the end of the process is not the end of the period.
#[tokio::test]
#[limit]
async fn a_job_that_ran_stays_run_when_its_process_exits_the_line_after() {
    let server = RedisServer::start();
    let exit = async |how: &str| {
        let arguments = [("url", server.url()), ("ttl_ms", "600000".to_owned()), ("key", "cron".to_owned())];
        let arguments: Vec<(&str, &str)> = arguments.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut worker = Worker::start("exit", &[arguments.as_slice(), &[("how", how)]].concat());
        let said = worker.next().await;
        worker.ended().await;
        said
    };
    assert_eq!(exit("failed-job-and-gone").await, "failed");
    assert_eq!(exit("job-and-gone").await, "ran", "the failed run does not count");
    let left = server.command(&["PTTL", "cron"]).int();
    assert!(left > 55 * 60 * 1000 && left <= 60 * 60 * 1000, "{left}");
    assert_eq!(exit("job-and-gone").await, "skipped");
}

/// The record lies beside the lock, ends by itself, and does not keep the lock from being freed.
#[tokio::test]
#[limit]
async fn on_a_server_it_ends_by_itself_and_never_keeps_a_lock_taken() {
    let server = RedisServer::start();
    let locks = locks(&server);
    run(hourly(&locks)).await.unwrap();
    let left = pttl(&server, "{cron:report}@job");
    assert!(left > 9 * 3_600_000 && left <= 10 * 3_600_000, "{left}");
    let record = async || locks.last_run("cron:report").await.unwrap();
    let seen = record().await.unwrap();
    assert!(seen.succeeded && seen.started_ago < HOUR && seen.info.pid == std::process::id(), "{seen:?}");
    // A text of another version or program does not count as a record.
    server.command(&["SET", "{cron:report}@job", "3600000|x"]);
    assert_eq!(record().await, None);
    // A server that refuses to note it frees the lock nevertheless.
    server.command(&["DEL", "{cron:stuck}@job"]);
    server.command(&["LPUSH", "{cron:stuck}@job", "x"]);
    let stuck = || locks.lock("cron:stuck").at_most_every(HOUR).retry_failed();
    let failed = stuck().run(async |_| Err::<(), _>(LockError::unavailable("no"))).await;
    assert!(failed.unwrap_err().to_string().contains("no"));
    assert!(!exists(&server, "cron:stuck"));
    assert_eq!(stuck().run_blocking(|_| Ok::<_, LockError>(())).unwrap(), Some(()));
    assert!(exists(&server, "cron:stuck"), "kept for its period");
}
