//! The key that is locked is the key that is written: other clients that write it are kept out, and keep us
//! out. Each of them follows the classic protocol, `SET key value NX PX`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, RedisStore, distributed_lock};
use lock_testing::{RedisServer, limit};

/// A value, and the key that `foreign:<value>` locks for it.
const VALUES: [(&str, &str); 5] = [
    ("ann@example.org", "foreign:ann@example.org"),
    ("a b", "foreign:a b"),
    ("x:y", "foreign:x%3Ay"),
    ("a/b", "foreign:a/b"),
    ("ünï", "foreign:ünï"),
];
const TTL: Duration = Duration::from_secs(60);

/// A client of another library.
trait Foreign {
    /// Tries to take the lock, once.
    async fn take(&mut self) -> bool;
    async fn free(&mut self);
}

struct Rslock {
    manager: rslock::LockManager,
    key: String,
    held: Option<rslock::Lock>,
}

impl Rslock {
    fn new(server: &RedisServer, key: &str) -> Self {
        let mut manager = rslock::LockManager::new(vec![format!("redis://127.0.0.1:{}/", server.port())]);
        manager.set_retry(1, Duration::from_millis(1));
        Self { manager, key: key.to_owned(), held: None }
    }
}

impl Foreign for Rslock {
    async fn take(&mut self) -> bool {
        match self.manager.lock(self.key.as_bytes(), TTL).await {
            Ok(lock) => self.held = Some(lock),
            Err(rslock::LockError::Unavailable) => return false,
            Err(error) => panic!("rslock: {error}"),
        }
        true
    }

    async fn free(&mut self) {
        self.manager.unlock(&self.held.take().unwrap()).await;
    }
}

/// A process of Python, as `scripts/need-foreign-clients.sh` installs it.
struct RedisPy {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl RedisPy {
    fn new(server: &RedisServer, key: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = here.join("../target/foreign-clients/bin/python");
        assert!(python.exists(), "redis-py is not installed; run sh scripts/need-foreign-clients.sh");
        let key: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut process = Command::new(python)
            .arg(here.join("tests/clients/foreign/redis_py.py"))
            .args([server.port().to_string(), key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// Says a word and returns the answer. Its socket has a time limit, so it does answer.
    fn ask(&mut self, word: &str) -> String {
        writeln!(self.input, "{word}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Foreign for RedisPy {
    async fn take(&mut self) -> bool {
        match self.ask("take").as_str() {
            "taken" => true,
            "busy" => false,
            other => panic!("redis-py answers {other:?}"),
        }
    }

    async fn free(&mut self) {
        assert_eq!(self.ask("free"), "freed");
    }
}

impl Drop for RedisPy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell with `redis-cli`.
struct Shell {
    port: u16,
    key: String,
}

impl Shell {
    fn run(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Foreign for Shell {
    async fn take(&mut self) -> bool {
        match self.run(&["SET", &self.key, "the shell", "NX", "PX", "60000"]).as_str() {
            "OK" => true,
            "" => false,
            other => panic!("redis-cli answers {other:?}"),
        }
    }

    async fn free(&mut self) {
        const SCRIPT: &str =
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
        assert_eq!(self.run(&["EVAL", SCRIPT, "1", &self.key, "the shell"]), "1");
    }
}

#[distributed_lock(key = "foreign:<value>", wait = "none", client = locks)]
async fn as_documented(locks: &LockManager, value: &str, other: &mut impl Foreign) -> Result<bool, LockError> {
    Ok(other.take().await)
}

#[distributed_lock(key = "foreign:<value:raw>", wait = "none", client = locks)]
async fn as_it_is(locks: &LockManager, value: &str, other: &mut impl Foreign) -> Result<bool, LockError> {
    Ok(other.take().await)
}

/// Each keeps the other out, both ways.
async fn exclude_each_other(locks: &LockManager, value: &str, raw: bool, mut other: impl Foreign, what: &str) {
    let enter = async |other: &mut _| {
        if raw { as_it_is(locks, value, other).await } else { as_documented(locks, value, other).await }
    };
    assert!(!enter(&mut other).await.unwrap(), "{what} entered while we were inside");
    assert!(other.take().await, "{what} found our lock after it was released");
    let error = enter(&mut other).await.expect_err(what);
    assert_eq!(error.kind(), LockErrorKind::Busy, "{what}: {error}");
    other.free().await;
    assert!(!enter(&mut other).await.unwrap(), "{what} entered while we were inside");
}

#[tokio::test]
#[limit]
async fn the_key_that_is_locked_is_the_key_that_is_written() {
    let server = RedisServer::start();
    let locks = LockManager::builder(RedisStore::new(&server.url()).unwrap()).build().unwrap();
    for (value, documented) in VALUES {
        let written = format!("foreign:{value}");
        for (key, raw) in [(documented, false), (&written, true)] {
            let what = |name: &str| format!("{name} at {key:?}");
            exclude_each_other(&locks, value, raw, Rslock::new(&server, key), &what("rslock")).await;
            exclude_each_other(&locks, value, raw, RedisPy::new(&server, key), &what("redis-py")).await;
            let shell = Shell { port: server.port(), key: key.to_owned() };
            exclude_each_other(&locks, value, raw, shell, &what("redis-cli")).await;
        }
    }
}
