//! This version reads the data that an older version left on a server, and understands its messages (`docs/upgrading.md`).

mod older_reader;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use lock_core::LossReason;
use lock_testing::{RedisServer, Reply, limit};

use crate::support::{LONG, SECOND, eventually, locks, take};

const VERSIONS: [&str; 1] = ["0.1"];

fn server_ms(server: &RedisServer) -> i64 {
    server.command(&["EVAL", "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)", "0"]).int()
}

/// Replaces `{ms-5000}` and `{us-5000000}`.
fn at(text: &str, now: i64) -> String {
    let mut text = text.to_owned();
    for (begins, per_ms) in [("{ms", 1), ("{us", 1000)] {
        while let Some(start) = text.find(begins) {
            let end = start + text[start..].find('}').unwrap();
            let ahead: i64 = text[start + 3..end].parse().unwrap();
            text.replace_range(start..=end, &(now * per_ms + ahead).to_string());
        }
    }
    text
}

/// Leaves a server as that version left one. Returns its time in ms then.
fn leave(version: &str, server: &RedisServer) -> i64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version).join("redis.txt");
    let fixtures = std::fs::read_to_string(path).unwrap();
    let now = server_ms(server);
    for line in fixtures.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = at(line, now);
        let answer = server.command(&line.split(' ').collect::<Vec<_>>());
        assert!(!matches!(answer, Reply::Error(_)), "{line}: {answer:?}");
    }
    now
}

#[tokio::test]
#[limit]
async fn locks_jobs_and_readers_of_older_versions_are_read() {
    for version in VERSIONS {
        let server = RedisServer::start();
        let now = leave(version, &server);
        let locks = locks(&server);
        for (key, site, owner) in [
            ("held", "shop::charge", Some("ad24a2562be001a1946a3a44c3d477d2")),
            ("passing", "shop::charge", Some("bd24a2562be001a1946a3a44c3d477d2")),
            ("cron:report", "cron::report", None),
        ] {
            let holder = locks.holder(key).await.unwrap().unwrap();
            let info = holder.info.as_ref().unwrap();
            assert_eq!((&*info.host, info.pid, &*info.site), ("vm", 6120, site), "{key}");
            assert_eq!(holder.owner.map(lock_core::OwnerId::to_hex).as_deref(), owner, "{key}");
            assert!(holder.ttl_left.unwrap() <= 50 * SECOND, "{key}");
            assert!(locks.lock(key).try_acquire().await.unwrap().is_none(), "{key}");
        }
        let leader = locks.elect("billing").leader().await.unwrap().unwrap();
        assert_eq!(leader.announced(), Some("10.0.0.3:8080"));

        let run = locks.last_run("cron:report").await.unwrap().unwrap();
        assert_eq!((run.every, run.succeeded), (3600 * SECOND, true));
        assert!(run.started_ago >= 59 * SECOND, "{run:?}");

        for key in ["price:7", "price:8", "price:9"] {
            assert!(locks.write(key).try_acquire().await.unwrap().is_none(), "{key}");
            locks.read(key).try_acquire().await.unwrap().unwrap().release().await.unwrap();
        }

        let token = locks.lock("fresh").await.unwrap().token().get();
        assert!(token > u64::try_from(now + 1_800_000).unwrap() << 20, "tokens go on above the old ones: {token}");
        for (id, key) in [(42, "lock:user#35"), (7, "lock:user#22")] {
            let guard = locks.striped("lock:user", 64).lock(id).await.unwrap();
            assert_eq!(guard.key().as_str(), key, "{id}");
        }
    }
}

/// Hears what is published to a process of an older version.
struct Listener {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    fn start(server: &RedisServer, channel: &str) -> Self {
        let mut process = Command::new("redis-cli")
            .args(["-p", &server.port().to_string(), "SUBSCRIBE", channel])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut listener = Self { process, lines };
        assert_eq!(listener.three()[0], "subscribe");
        listener
    }

    fn three(&mut self) -> [String; 3] {
        std::array::from_fn(|_| {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            line.trim().to_owned()
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
#[limit]
async fn a_waiter_of_an_older_version_is_granted_and_told_as_it_expects() {
    const WAITER: &str = "76cccb839ce97cb7cbd50ea09167cf9b";
    for version in VERSIONS {
        let server = RedisServer::start();
        let guard = take(&locks(&server), "queued").await;
        leave(version, &server);
        let mut listener = Listener::start(&server, "distributed-lock:inbox:c018bc9895bce3763122d68b0b9a379a");
        guard.release().await.unwrap();
        let told = listener.three();
        let message: Vec<&str> = told[2].split('|').collect();
        assert_eq!(
            (message.len(), message[0], message[4]),
            (5, WAITER, "queued"),
            "owner|token|ttl|stamp|key: {told:?}"
        );
        let [ms, seq] = message[1].split('-').map(|part| part.parse::<u64>().unwrap()).collect::<Vec<_>>()[..] else {
            panic!("{told:?}")
        };
        assert!(ms > 0 && seq < 8192 && (1..=3000).contains(&message[2].parse::<u64>().unwrap()), "{told:?}");
        let value = server.command(&["GET", "queued"]).text().to_owned();
        let value: Vec<&str> = value.split('|').collect();
        assert_eq!((value[0], &value[2..7]), (WAITER, &["30000", "vm", "6120", "shop::refund", "lock:<name>"][..]));
    }
}

#[tokio::test]
#[limit]
async fn grants_and_orders_of_older_versions_are_understood() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let now = server_ms(&server);
    server.command(&[
        "SET",
        "k",
        &at("ad24a2562be001a1946a3a44c3d477d2|{ms-5000}|60000|vm|6120|shop::charge|k", now),
        "PX",
        "60000",
    ]);
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k").with_wait(LONG).with_label("k").await.unwrap() }
    });
    let waiters = || server.command(&["HVALS", "{k}@waiters"]);
    eventually("it waits", || format!("{:?}", waiters()).contains("inbox")).await;
    let owner =
        server.command(&["EVAL", "return redis.call('HKEYS', KEYS[1])[1]", "1", "{k}@waiters"]).text().to_owned();
    let entry = server.command(&["HGET", "{k}@waiters", &owner]).text().to_owned();
    let entry: Vec<&str> = entry.split('|').collect();
    // inbox|stamp|confirmed|reach|grant_ttl|floor|ttl|host|pid|site|lock name
    assert_eq!(entry.len(), 11, "an older version reads this: {entry:?}");

    // As 0.1 releases and grants.
    let grant = "redis.call('ZREM', KEYS[2], ARGV[1]) redis.call('HDEL', KEYS[3], ARGV[1]) \
         redis.call('SET', KEYS[1], ARGV[2], 'PX', 30000) return redis.call('PUBLISH', ARGV[3], ARGV[4])";
    let value = format!("{owner}|{now}|{}", entry[6..].join("|"));
    let message = format!("{owner}|{now}-0|3000|{}|k", entry[1]);
    let heard =
        server.command(&["EVAL", grant, "3", "k", "{k}@queue", "{k}@waiters", &owner, &value, entry[0], &message]);
    assert_eq!(heard.int(), 1);
    let guard = waiting.await.unwrap();
    assert_eq!(guard.token().get(), u64::try_from(now).unwrap() << 20, "the token of the message");

    // As `lockctl release` of 0.1 takes it away.
    let revoke = "redis.call('PUBLISH', ARGV[1], ARGV[2]) return redis.call('DEL', KEYS[1])";
    let order = format!("{owner}|ann|a deploy");
    server.command(&["EVAL", revoke, "1", "k", "distributed-lock:inbox:revoked", &order]);
    assert_eq!(guard.lost().await, LossReason::Revoked);
}
