//! Jobs that have a period, as `lockctl` shows them.

use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_testing::{RedisServer, limit};

use crate::program::{lockctl, lockctl_at};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn run(locks: &LockManager, key: &str, every: Duration, fails: bool) {
    let job = locks.lock(key).with_site("shop::report").at_most_every(every);
    let end = if fails { Err(LockError::unavailable("the printer is on fire")) } else { Ok(()) };
    let ended = job.run(async |_| end).await;
    assert_eq!(ended.is_err(), fails, "{ended:?}");
}

#[tokio::test]
#[limit]
async fn an_overdue_job_is_named_with_its_last_run() {
    let server = RedisServer::start();
    let none = lockctl(&server, &["jobs"]);
    none.assert_code(0);
    assert!(none.stdout.starts_with("no job with a period is remembered on 127.0.0.1:"), "{none:?}");
    let locks = LockManager::connect(&server.url()).await.unwrap();
    run(&locks, "cron:report", HOUR, false).await;
    run(&locks, "cron:nightly", 24 * HOUR, false).await;
    server.command(&["SET", "{cron:other}@job", "written by another version"]);

    let shown = lockctl(&server, &["jobs", "--json"]).json();
    let keys: Vec<_> = shown["jobs"].as_array().unwrap().iter().map(|job| job["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["cron:nightly", "cron:report"], "{shown:#}");
    assert!(shown["jobs"][1]["overdue_by_seconds"].is_null(), "{shown:#}");
    assert!(lockctl(&server, &["jobs"]).stdout.contains("2 jobs on 127.0.0.1"), "on time");
    assert!(!lockctl(&server, &["list"]).stdout.contains("overdue"));

    miss(&server, "cron:report", 3 * HOUR);
    let late = lockctl(&server, &["jobs"]);
    late.assert_code(0);
    let row = late.stdout.lines().nth(1).unwrap();
    let process = format!("pid {} on ", std::process::id());
    for part in ["cron:report", "overdue by 2 h 0", "1 h 00 min", "3 h 0", "well", "shop::report", &process] {
        assert!(row.contains(part), "{part} in {late:?}");
    }
    assert!(late.stdout.contains("2 jobs on ") && late.stdout.contains("1 of them overdue"), "{late:?}");
    let json = lockctl(&server, &["jobs", "--prefix", "cron:r", "--json"]).json();
    let job = &json["jobs"][0];
    assert_eq!((json["jobs"].as_array().unwrap().len(), &job["key"]), (1, &"cron:report".into()), "{json:#}");
    let by = job["overdue_by_seconds"].as_f64().unwrap();
    assert!((7200.0..7800.0).contains(&by) && job["last_run"]["pid"] == std::process::id(), "{json:#}");

    // Every view of a lock tells it, also when nobody holds the lock.
    server.command(&["DEL", "cron:report"]);
    let list = lockctl(&server, &["list"]);
    assert!(list.stdout.contains("overdue: the job cron:report by 2 h 0"), "{list:?}");
    assert_eq!(lockctl(&server, &["list", "--json"]).json()["jobs"][0]["key"], "cron:report");
    for command in ["show", "why"] {
        let text = lockctl(&server, &[command, "cron:report"]);
        text.assert_code(1);
        for part in
            ["cron:report is free", "overdue by 2 h 0", "it runs every 1 h 00 min", "shop::report", "ended well"]
        {
            assert!(text.stdout.contains(part), "{part} in {command}: {text:?}");
        }
        let json = lockctl(&server, &[command, "cron:report", "--json"]).json();
        assert!(json["job"]["overdue_by_seconds"].as_f64().unwrap() >= 7200.0, "{json:#}");
    }
    let kept = lockctl(&server, &["show", "cron:nightly"]);
    kept.assert_code(0);
    assert!(kept.stdout.contains("kept") && kept.stdout.contains("on time: it runs every 1 d 00 h"), "{kept:?}");
}

#[tokio::test]
#[limit]
async fn a_job_that_runs_and_fails_is_overdue_too() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    run(&locks, "cron:report", HOUR, true).await;
    miss(&server, "cron:report", 2 * HOUR);
    server.command(&["DEL", "cron:report"]);
    run(&locks, "cron:report", HOUR, true).await;
    server.command(&["DEL", "cron:report"]);
    let job = locks.lock("cron:report").at_most_every(HOUR);
    let shown = job.run(async |_| Ok::<_, LockError>(lockctl(&server, &["jobs"]))).await.unwrap().unwrap();
    for part in ["overdue by 1 h 0", "running for ", "failed", "1 job on ", ", overdue"] {
        assert!(shown.stdout.contains(part), "{part} in {shown:?}");
    }
    let after = lockctl(&server, &["show", "cron:report"]);
    assert!(after.stdout.contains("on time") && after.stdout.contains("ended well"), "{after:?}");
}

#[tokio::test]
#[limit]
async fn a_job_that_failed_last_is_told_first_though_it_is_on_time() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    run(&locks, "cron:a", HOUR, false).await;
    run(&locks, "cron:b", HOUR, true).await;
    let shown = lockctl(&server, &["jobs"]);
    let row = shown.stdout.lines().nth(1).unwrap();
    assert!(row.contains("cron:b") && row.contains("failed"), "{shown:?}");
    assert!(shown.stdout.contains("all on time, 1 failed last"), "{shown:?}");
}

#[tokio::test]
#[limit]
async fn a_namespace_has_jobs_of_its_own() {
    let server = RedisServer::start();
    let url = |prefix: &str| format!("{}?key_prefix={prefix}", server.url());
    for prefix in ["prod:", "test:"] {
        let locks = LockManager::connect(&url(prefix)).await.unwrap();
        run(&locks, "cron:report", HOUR, false).await;
        assert!(locks.last_run("cron:report").await.unwrap().is_some());
    }
    let shown = lockctl_at(&url("prod:"), &["jobs", "--json"]).json();
    assert_eq!(shown["jobs"].as_array().unwrap().len(), 1, "{shown:#}");
    assert_eq!(shown["jobs"][0]["key"], "prod:cron:report");
    assert!(lockctl_at(&url("prod:"), &["show", "cron:report"]).stdout.contains("on time"));
}

/// Makes the last run of a job lie further back.
pub(crate) fn miss(server: &RedisServer, key: &str, by: Duration) {
    let earlier = "local period, from, ok, since, rest = \
                   string.match(redis.call('GET', KEYS[1]), '^(%d+)|(%d+)|(%d)|(%d+)(|.*)$') \
                   local function back(ms) return string.format('%d', ms - ARGV[1]) end \
                   redis.call('SET', KEYS[1], table.concat({ period, back(from), ok, back(since) .. rest }, '|'), 'KEEPTTL')";
    let done = server.command(&["EVAL", earlier, "1", &format!("{{{key}}}@job"), &by.as_millis().to_string()]);
    println!("{done:?}");
}
