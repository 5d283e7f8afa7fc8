//! Shared by the tests.

use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_metrics::MetricsHandle;
use lock_redisson as _;
use lock_testing::{RedisServer, Reply};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A thread of a client of Redisson that is played by plain commands.
pub(crate) const JAVA: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:42";

/// Names the same servers with the layout.
pub(crate) fn in_layout(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}layout=redisson")
}

/// A manager whose leases and waits outlast every stall of the machine.
pub(crate) fn locks(url: &str) -> LockManager {
    let builder = LockManager::builder_for(&in_layout(url)).unwrap();
    builder.with_ttl(30 * SECOND).with_wait(PATIENCE).build().unwrap()
}

/// Takes a lock as Redisson does.
pub(crate) fn java_takes(server: &RedisServer, key: &str, ttl: Duration) {
    let script = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end redis.call('HINCRBY', KEYS[1], ARGV[1], 1) \
                  return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
    assert_eq!(server.command(&["EVAL", script, "1", key, JAVA, &ttl.as_millis().to_string()]), Reply::Int(1));
}

/// Frees it as Redisson does.
pub(crate) fn java_frees(server: &RedisServer, key: &str) {
    let script = "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', KEYS[2], '0')";
    server.command(&["EVAL", script, "2", key, &format!("redisson_lock__channel:{{{key}}}")]);
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

pub(crate) fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

/// How often a command was called, also by scripts.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
    let line = stats.split("\r\n").find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// How often a script was called by its hash, as ours are.
pub(crate) fn scripts(server: &RedisServer) -> u64 {
    calls(server, "evalsha")
}

/// How many clients listen to a channel.
pub(crate) fn listeners(server: &RedisServer, channel: &str, sharded: bool) -> i64 {
    let asked = if sharded { "SHARDNUMSUB" } else { "NUMSUB" };
    match server.command(&["PUBSUB", asked, channel]) {
        Reply::List(reply) => reply[1].int(),
        other => panic!("{other:?}"),
    }
}

/// The time of the server, in seconds since 1970.
pub(crate) fn time(server: &RedisServer) -> f64 {
    let Reply::List(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let [seconds, micros] = [0, 1].map(|at| parts[at].text().parse::<f64>().unwrap());
    seconds + micros / 1e6
}

/// Returns when the oldest hold of Redisson began for which this process waits, as the alert on stuck locks reads it.
pub(crate) fn began(metrics: &MetricsHandle) -> Option<f64> {
    let (text, name) = (metrics.render(), "waiting_on_oldest_hold_start_timestamp_seconds{");
    let mut lines = text.lines().filter(|line| line.contains(name) && line.contains(r#"holder_site="Redisson""#));
    lines.next()?.rsplit(' ').next()?.parse().ok()
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(2 * MS).await;
    }
}
