//! Shared by the tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::LockManager;
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

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(2 * MS).await;
    }
}

/// Names a test that cannot run here, past the harness, which shows nothing of a test that passes.
pub(crate) fn not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {why}");
}

/// A program of Redisson's that takes and releases locks on demand: `lab/proof/peers/java`.
pub(crate) struct Redisson {
    program: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Redisson {
    /// Starts it, and waits until it says that it is ready. `None` where Redisson is not installed.
    pub(crate) fn start(url: &str, watchdog: Duration) -> Option<Self> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/java");
        let below = |name: &str| -> PathBuf { peers.join(name) };
        if !below("classes/RedissonPeer.class").exists() {
            not_run("Redisson is not installed; with Java and Maven: sh scripts/need-redisson.sh");
            return None;
        }
        let classes = format!("{}:{}", below("classes").display(), below("lib/*").display());
        let mut program = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &classes])
            .args(["RedissonPeer", "RLock", url, &watchdog.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (orders, answers) = (program.stdin.take().unwrap(), BufReader::new(program.stdout.take().unwrap()));
        let mut redisson = Self { program, orders, answers };
        assert!(redisson.answer().contains("ready"));
        Some(redisson)
    }

    pub(crate) fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer
    }

    /// Asks for something, and returns whether it was done.
    pub(crate) fn does(&mut self, order: &str) -> bool {
        self.send(order);
        self.answer().contains(": true")
    }

    /// Asks for a lock, and waits for so long.
    pub(crate) fn acquires(&mut self, key: &str, wait: Duration) -> bool {
        self.does(&format!(r#"{{"acquire": "{key}", "wait_ms": {}}}"#, wait.as_millis()))
    }

    pub(crate) fn releases(&mut self) -> bool {
        self.does(r#"{"release": true}"#)
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        self.kill();
    }
}
