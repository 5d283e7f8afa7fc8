//! One connection to a database, through the database's own command line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lock_testing::{freeze, thaw};

/// A session. Statements run one after the other; an open transaction ends with it.
pub(super) struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    asked: usize,
}

impl Session {
    pub(super) fn open(client: &mut Command) -> Self {
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout, asked: 0 }
    }

    /// Sends statements, and does not wait for their answers.
    pub(super) fn send(&mut self, sql: &str) {
        self.asked += 1;
        writeln!(self.stdin, "{sql}\nSELECT 'answered {}';", self.asked).unwrap();
        self.stdin.flush().unwrap();
    }

    /// Waits for the answers to the last statements: the rows, and the client's message about each
    /// statement.
    pub(super) fn answers(&mut self) -> Vec<String> {
        self.answers_unless_ended().expect("the session goes on")
    }

    /// The same, or `None` where the client has ended instead.
    pub(super) fn answers_unless_ended(&mut self) -> Option<Vec<String>> {
        let end = format!("answered {}", self.asked);
        let mut answers = Vec::new();
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim();
            if line == end {
                return Some(answers);
            }
            if !line.is_empty() {
                answers.push(line.to_owned());
            }
        }
    }

    /// Stops the client where it is, like a process that is frozen. Its connection stays.
    pub(super) fn freeze(&self) {
        freeze(self.child.id());
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) {
        thaw(self.child.id());
    }

    pub(super) fn run(&mut self, sql: &str) -> Vec<String> {
        self.send(sql);
        self.answers()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
