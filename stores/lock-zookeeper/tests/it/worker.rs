//! Another process, which is stopped: this test program with the one test `worker::process` and the variable [`WORDS`].

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use lock_testing::{Recorder, freeze, limit, thaw};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::locks;

/// The variable with the URL and the file of the history, and what stands between them.
const WORDS: &str = "LOCK_ZOOKEEPER_WORKER";
const BETWEEN: char = '\x1f';

/// How each line of a worker begins. The test runner prints lines too.
const ANSWER: &str = "> ";

const PATIENCE: Duration = Duration::from_secs(120);

/// A process that holds a lock. Killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(url: &str, history: &Path) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["worker::process", "--exact", "--nocapture", "--quiet"]);
        program.env(WORDS, format!("{url}{BETWEEN}{}", history.display()));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, says }
    }

    /// Sends an order, and waits for the answer.
    pub(crate) async fn order(&mut self, order: &str) -> String {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        loop {
            let line = tokio::time::timeout(PATIENCE, self.says.next_line()).await;
            let line = line.expect("a worker is silent").unwrap().expect("a worker has ended");
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return answer.to_owned();
            }
        }
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

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Runs a worker. It does nothing in a run of all tests.
#[test]
#[limit(3600)]
fn process() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let (url, history) = words.split_once(BETWEEN).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = locks(url);
    let recorder = Recorder::append_to(Path::new(history));
    locks.observe(Recorder::append_to(Path::new(history)));
    let mut held = None;
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let answer = runtime.block_on(obey(&order, &locks, &recorder, &mut held));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ANSWER}{answer}").unwrap();
        out.flush().unwrap();
    }
}

async fn obey(order: &str, locks: &LockManager, recorder: &Recorder, held: &mut Option<LockGuard>) -> String {
    match (order.split_once(' ').unwrap_or((order, "")), &held) {
        (("acquire", key), _) => match locks.lock(key).await {
            Ok(guard) => {
                let token = guard.token().to_string();
                *held = Some(guard);
                token
            }
            Err(error) => format!("failed: {error}"),
        },
        (("check", _), Some(guard)) => match guard.ensure_held() {
            Ok(()) => "held".to_owned(),
            Err(error) => format!("{:?}", error.loss_reason()),
        },
        (("release", _), Some(guard)) => {
            recorder.release(guard.key(), guard.token());
            match held.take().unwrap().release().await {
                Ok(outcome) => format!("{outcome:?}"),
                Err(error) => format!("failed: {error}"),
            }
        }
        (("lost", _), Some(guard)) => format!("{:?}", guard.lost().await),
        other => panic!("{other:?} is no order"),
    }
}
