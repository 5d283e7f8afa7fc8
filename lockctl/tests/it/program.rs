//! Runs the program without anything from the test's environment that could change its behaviour.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use lock_testing::RedisServer;
use serde_json::Value;

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }

    /// The whole of standard output, which must be one document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
    command.args(arguments).env_remove("SUDO_USER").env("USER", "ana").env("LOCK_URL", url).stdin(Stdio::null());
    command
}

/// Runs it against a server.
pub(crate) fn lockctl(server: &RedisServer, arguments: &[&str]) -> Ended {
    lockctl_at(&server.url(), arguments)
}

pub(crate) fn lockctl_at(url: &str, arguments: &[&str]) -> Ended {
    end(&mut command(url, arguments))
}

/// Runs a command line of `lockctl` in a shell.
pub(crate) fn shell(server: &RedisServer, line: &str) -> Ended {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" {line}")]).arg(env!("CARGO_BIN_EXE_lockctl"));
    end(shell.env("LOCK_URL", server.url()).stdin(Stdio::null()))
}

/// Runs it with another certificate authority than those that this machine trusts.
#[cfg(feature = "tls")]
pub(crate) fn lockctl_trusting(authority: &std::path::Path, url: &str, arguments: &[&str]) -> Ended {
    end(command(url, arguments).env("SSL_CERT_FILE", authority))
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A run that continues until it is interrupted, or killed when this is dropped.
pub(crate) struct Watching {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

pub(crate) fn watch(server: &RedisServer, arguments: &[&str]) -> Watching {
    watch_at(&server.url(), arguments)
}

pub(crate) fn watch_at(url: &str, arguments: &[&str]) -> Watching {
    let mut child = command(url, arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Watching { child, stdout }
}

impl Watching {
    /// Waits for a line that contains this, and returns it.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended without saying {part:?}: {seen}");
            if line.contains(part) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    /// Presses Ctrl-C.
    pub(crate) fn interrupt(mut self) -> Ended {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout: String::new(), stderr: String::new() }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
