//! A lock of another library, run by a program that speaks lines of JSON on its standard streams: `peers/README.md`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

pub(super) struct Adapter {
    command: Vec<String>,
    child: Child,
    answers: Receiver<Value>,
    /// Whether the adapter has reported that the lock is lost.
    lost: Arc<AtomicBool>,
}

impl Adapter {
    /// Starts the adapter. Tabs separate the words of its command.
    pub(super) fn start(command: &str, url: &str, ttl_ms: &str) -> Self {
        let mut command: Vec<String> = command.split('\t').map(str::to_owned).collect();
        command.extend([url.to_owned(), ttl_ms.to_owned()]);
        Self::launch(command)
    }

    fn launch(command: Vec<String>) -> Self {
        let (program, words) = command.split_first().unwrap();
        let mut program = Command::new(program);
        let mut child =
            program.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lost = Arc::new(AtomicBool::new(false));
        let (sender, answers) = channel();
        let noted = Arc::clone(&lost);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
                if said.get("lost").is_some() {
                    noted.store(true, Ordering::SeqCst);
                } else if sender.send(said).is_err() {
                    return;
                }
            }
        });
        let adapter = Self { command, child, answers, lost };
        let ready = adapter.answers.recv_timeout(Duration::from_secs(60)).ok();
        assert!(ready.is_some_and(|said| said.get("ready").is_some()), "{:?} is not ready", adapter.command);
        adapter
    }

    /// Sends an order and waits for the answer without a limit: a library that hangs is a finding, so no time-out may hide it.
    fn ask(&mut self, order: &Value) -> Option<Value> {
        let sent =
            self.child.stdin.as_mut().is_some_and(|orders| orders.write_all(format!("{order}\n").as_bytes()).is_ok());
        let answer = sent.then(|| self.answers.recv().ok()).flatten();
        if answer.is_none() {
            // The adapter ended by itself. A new one takes its place.
            let _ = (self.child.kill(), self.child.wait());
            *self = Self::launch(std::mem::take(&mut self.command));
        }
        answer
    }

    /// Returns the granted lock's token, if the library has tokens.
    #[expect(clippy::option_option, reason = "whether it is granted, and whether it has a token")]
    pub(super) fn acquire(&mut self, key: &str, wait: Duration) -> Option<Option<u64>> {
        self.lost.store(false, Ordering::SeqCst);
        let said = self.ask(&json!({"acquire": key, "wait_ms": u64::try_from(wait.as_millis()).unwrap()}))?;
        (said.get("acquired")? == &json!(true)).then(|| said.get("token").and_then(Value::as_u64))
    }

    pub(super) fn is_held(&mut self) -> bool {
        let held = self.ask(&json!({"check": true})).is_some_and(|said| said.get("held") == Some(&json!(true)));
        held && !self.lost.load(Ordering::SeqCst)
    }

    pub(super) fn release(&mut self) {
        self.ask(&json!({"release": true}));
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // The adapter ends when its standard input is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
