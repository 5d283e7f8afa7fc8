//! Redisson itself, in a Java program of its own. The tests of the examples use it too.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lock_testing::not_run;

/// A program of Redisson's that takes and releases locks on demand: `lab/proof/peers/java`.
pub(crate) struct Redisson {
    program: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Redisson {
    /// Starts it, and waits until it says that it is ready. `None` where Redisson is not installed.
    pub(crate) fn start(url: &str, watchdog: Duration) -> Option<Self> {
        let mut folders =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("target/peers/java"));
        let Some(peers) = folders.find(|folder| folder.join("classes/RedissonPeer.class").exists()) else {
            not_run("Redisson is not installed; with Java and Maven: sh scripts/need-redisson.sh");
            return None;
        };
        let classes = format!("{}:{}", peers.join("classes").display(), peers.join("lib/*").display());
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

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.send(order);
        self.answer()
    }

    /// Asks for something, and returns whether it was done.
    pub(crate) fn does(&mut self, order: &str) -> bool {
        self.ask(order).contains(": true")
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
