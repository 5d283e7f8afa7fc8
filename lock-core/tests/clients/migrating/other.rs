//! Libraries in other languages, as `scripts/need-foreign-clients.sh` installs them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lock_testing::{RedisServer, own_stderr};

fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/foreign-clients")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/migrating").join(name)
}

/// A process that runs a line of its language and answers with a line.
pub(super) struct Other {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

pub(super) fn redis_py(server: &RedisServer) -> Other {
    let python = installed().join("bin/python");
    assert!(python.exists(), "redis-py is not installed; run sh scripts/need-foreign-clients.sh");
    Other::start(Command::new(python).arg(script("redis_py.py")), server)
}

/// `None` if Node.js is missing, which is not needed for anything else.
pub(super) fn node_redlock(server: &RedisServer) -> Option<Other> {
    let modules = installed().join("node_modules");
    if !modules.join("redlock").exists() {
        eprintln!(
            "node-redlock is not installed, so its rows are not run; with Node.js: sh scripts/need-foreign-clients.sh"
        );
        return None;
    }
    Some(Other::start(Command::new("node").arg(script("node_redlock.js")).env("NODE_PATH", modules), server))
}

impl Other {
    fn start(command: &mut Command, server: &RedisServer) -> Self {
        let process = command
            .arg(server.port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(own_stderr())
            .spawn();
        let mut process = process.unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    pub(super) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(super) fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended");
        line.trim().to_owned()
    }

    pub(super) fn run(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
