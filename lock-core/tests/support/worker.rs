//! Worker processes, and the files they share.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_testing::{History, Recorder, Verdict, freeze, thaw};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::worker::{ANSWER, BETWEEN, WORDS};

/// How long a worker may take to say something.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of [`worker`](crate::worker), or of another program. Killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    /// How each of its lines begins. Others are not its own.
    answer: &'static str,
}

impl Worker {
    pub(crate) fn start(mode: &str, args: &[(&str, &str)]) -> Self {
        Self::start_in(&[], mode, args)
    }

    /// Starts it with some variables in its environment.
    pub(crate) fn start_in(environment: &[(&str, &str)], mode: &str, args: &[(&str, &str)]) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let args = args.iter().map(|(name, value)| format!("{BETWEEN}{name}={value}"));
        program.envs(environment.iter().copied()).env(WORDS, args.fold(mode.to_owned(), |words, word| words + &word));
        program.args(["worker::process", "--exact", "--nocapture", "--quiet"]);
        Self { answer: ANSWER, ..Self::run(program) }
    }

    /// Starts another program that answers and takes orders line by line.
    pub(crate) fn run(mut program: Command) -> Self {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, says, answer: "" }
    }

    /// Waits for the worker's next line.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.says.next_line()).await;
            let line = line.expect("a worker is silent").unwrap().expect("a worker has ended");
            if let Some(answer) = line.strip_prefix(self.answer) {
                return answer.to_owned();
            }
        }
    }

    /// Sends an order, and waits for the answer.
    pub(crate) async fn order(&mut self, order: &str) -> String {
        self.send(order).await;
        self.next().await
    }

    pub(crate) async fn send(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the worker runs")
    }

    pub(crate) fn stop(&self) {
        freeze(self.pid());
    }

    pub(crate) fn resume(&self) {
        thaw(self.pid());
    }

    /// Kills it as the kernel does when memory runs out, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until it ends by itself, without an error.
    pub(crate) async fn ended(mut self) {
        drop(self.orders);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("a worker goes on and on").unwrap();
        assert!(status.success(), "{status}");
    }
}

/// A directory of one test, with the history that its processes share.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lock-core-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// Records of the test process itself.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::append_to(&self.history())
    }

    /// Checks the history of all processes, and prints it if it is wrong.
    pub(crate) fn verdict(&self) -> Verdict {
        let verdict = History::check_file(&self.history());
        if !verdict.violations.is_empty() {
            println!("{}", std::fs::read_to_string(self.history()).unwrap());
        }
        verdict
    }

    pub(crate) fn path(&self, name: &str) -> String {
        Path::new(&self.0).join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
