//! Counts instructions with callgrind. Unlike times, they do not depend on the load of the machine.
//!
//! A count is the difference between a long and a short run of the same work, divided by the difference in
//! acquisitions. Start and end therefore cancel out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Result;
use crate::contestant::Kind;
use crate::process::fleet;
use crate::process::work::Work;
use crate::servers::server::Server;

/// The approximate number of acquisitions in the two runs.
const SHORT: u64 = 1_600;
const LONG: u64 = 8_000;

/// How long callgrind may take to write its report after the process has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Instructions per acquire and release.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Instructions {
    /// Instructions of the client, against a server that is much faster.
    pub(crate) client: f64,
    /// Instructions of the server, with clients that are much faster, so that batches are full.
    pub(crate) server: f64,
}

/// Counts with callgrind. Deletes its reports on drop.
pub(crate) struct Counter {
    directory: PathBuf,
    /// The server program to start.
    program: String,
}

impl Counter {
    /// Checks that valgrind and the special build are there.
    pub(crate) fn new(program: &str) -> Result<Self> {
        // Valgrind stops at the system calls that rustix makes itself, so the build must use libc. A cargo feature for
        // it would also change the tests of the whole workspace.
        if !cfg!(rustix_use_libc) {
            return Err("this build cannot run under callgrind; build it another way: \
                RUSTFLAGS=\"--cfg rustix_use_libc\" cargo run --release --target-dir target/callgrind -p lock-bench -- --instructions"
                .into());
        }
        let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(
                "valgrind is missing; install it with scripts/need-valgrind.sh, or leave --instructions out".into()
            );
        }
        let directory = std::env::temp_dir().join(format!("lock-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory, program: program.to_owned() })
    }

    /// Counts the work of one contestant in one process.
    pub(crate) fn count(&self, port: u16, kind: Kind, work: Work) -> Result<Instructions> {
        let client = |times| {
            let (pid, pairs) = fleet::run_out(&self.callgrind(), port, kind, Self::of(work, times))?;
            Ok((self.collected(&pid.to_string())?, pairs))
        };
        let server = |times| {
            let mut server = Server::start(self.server()?)?;
            let (_, pairs) = fleet::run_out(&[], server.port(), kind, Self::of(work, times))?;
            server.shut_down();
            Ok((self.collected(server.process())?, pairs))
        };
        Ok(Instructions { client: per_pair(client)?, server: per_pair(server)? })
    }

    fn of(work: Work, pairs: u64) -> Work {
        Work { times: Some(pairs / u64::from(work.tasks)), ..work }
    }

    fn callgrind(&self) -> Vec<String> {
        let log = self.directory.join("%p.log");
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--log-file={}", log.display())]
            .map(str::to_owned)
            .to_vec()
    }

    /// Writes a program that starts the server under callgrind.
    fn server(&self) -> Result<String> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.join("server");
        std::fs::write(&path, format!("#!/bin/sh\nexec {} {} \"$@\"\n", self.callgrind().join(" "), self.program))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(path.display().to_string())
    }

    /// Reads how many instructions a process has executed.
    fn collected(&self, pid: &str) -> Result<f64> {
        let log = self.directory.join(format!("{pid}.log"));
        let started = Instant::now();
        loop {
            if let Some(count) = read(&log) {
                return Ok(count);
            }
            if started.elapsed() > PATIENCE {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("callgrind gave no count; it said: {text}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn read(log: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn per_pair(run: impl Fn(u64) -> Result<(f64, u64)>) -> Result<f64> {
    let ((less, few), (more, many)) = (run(SHORT)?, run(LONG)?);
    Ok((more - less) / (many - few) as f64)
}
