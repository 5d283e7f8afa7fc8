//! Beside node-redisson, which says that it excludes Redisson in Java.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lock_core::ReleaseOutcome;
use lock_testing::{RedisServer, Stopwatch, limit, not_run, own_stderr};

use crate::support::{SECOND, eventually, exists, listeners, locks, scripts};

/// A process that runs a line of JavaScript and answers with a line.
struct Node {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Node {
    /// `None` where node-redisson is not installed.
    fn start(server: &RedisServer) -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = here.join("../../target/peers/node-redisson/node_modules");
        if !modules.join("node-redisson").exists() {
            not_run("node-redisson is not installed; with Node.js: sh scripts/need-redisson.sh");
            return None;
        }
        let mut process = Command::new("node")
            .arg(here.join("tests/it/node_redisson.js"))
            .arg(server.port().to_string())
            .env("NODE_PATH", modules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(own_stderr())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut node = Self { process, input, output: BufReader::new(output) };
        assert_eq!(node.answer(), "ready");
        Some(node)
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended");
        line.trim().to_owned()
    }

    fn run(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn node_redisson_and_ours_exclude_each_other_and_ours_is_woken() {
    let server = RedisServer::start();
    let Some(mut node) = Node::start(&server) else { return };
    let (locks, channel) = (locks(&server.url()), "redisson_lock__channel:{k}");
    // It opens its channel after it has asked, and misses a message in between. Then it sleeps until the lease would have ended.
    let guard = locks.lock("k").with_ttl(4 * SECOND).await.unwrap();
    assert_eq!(node.run("lock = redisson.getLock('k'), lock.tryLock(0n, true)"), "false");
    node.send("lock.tryLock(false, true)");
    eventually("it listens", || listeners(&server, channel, false) > 0).await;
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(node.answer(), "true");
    watch.assert_within(5 * SECOND, "node-redisson gets the lock after our release");

    let error = locks.lock("k").without_waiting().await.unwrap_err();
    assert!(error.to_string().contains("Redisson"), "{error}");
    let (waiting, asked) = (locks.clone(), scripts(&server));
    let waiting = tokio::spawn(async move { waiting.lock("k").await.unwrap() });
    eventually("ours waits", || scripts(&server) > asked + 1).await;
    let watch = Stopwatch::start();
    assert_eq!(node.run("lock.unlock()"), "undefined");
    let guard = waiting.await.unwrap();
    watch.assert_within(5 * SECOND, "ours hears of its release");
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(node.run("lock.unlock()"), "Error", "it is not its own");
    assert!(!exists(&server, "k"));
}
