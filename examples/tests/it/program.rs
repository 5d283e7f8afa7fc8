//! A program under test: started, controlled, and never left running.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long any step of a program may take, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running program with its own folder for temporary files. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    said: String,
    folder: TempDir,
    interrupted: bool,
}

/// The outcome of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The names of temporary files that were not removed.
    pub(crate) litter: Vec<String>,
}

/// Starts a program without anything from the test's environment that could change its behaviour.
pub(crate) fn start(path: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
    Program::start(Command::new(path).args(arguments).envs(environment.iter().copied()))
}

/// Runs a program to its end.
pub(crate) fn run(path: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    start(path, arguments, environment).end()
}

impl Program {
    /// Starts what a command says, but for its environment and its streams.
    pub(crate) fn start(command: &mut Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LOCK_URL", "LISTEN"] {
            if !command.get_envs().any(|(set, _)| set == name) {
                command.env_remove(name);
            }
        }
        command.env("TMPDIR", folder.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, said: String::new(), folder, interrupted: false }
    }

    /// Waits for a line on standard output that starts with this text, and returns the rest of it.
    pub(crate) fn wait_for_line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.stdout.read_line(&mut line).unwrap();
            if bytes == 0 {
                panic!("the program ended without saying {start:?}: {}{}", self.complaints(), self.said);
            }
            self.said.push_str(&line);
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Presses Ctrl-C repeatedly until the program ends: one that arrives between two steps of the
    /// program may be lost.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = true;
        self.press_ctrl_c();
    }

    fn press_ctrl_c(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns where the program puts its temporary files.
    pub(crate) fn temporary_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the program ends.
    pub(crate) fn end(mut self) -> Ended {
        let status = self.wait();
        let mut stdout = std::mem::take(&mut self.said);
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.complaints();
        let litter = self.folder.path().read_dir().unwrap();
        let litter = litter.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        Ended { code: status.code(), stdout, stderr, litter }
    }

    // The examples print far less than a pipe holds, so a late reader never blocks them.
    fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        for tick in 1.. {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if self.interrupted && tick % 100 == 0 {
                self.press_ctrl_c();
            }
            assert!(since.elapsed() < PATIENCE, "the program does not end; so far: {}", self.said);
            thread::sleep(Duration::from_millis(10));
        }
        unreachable!("ticks are endless")
    }

    fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = self.child.kill();
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Checks that the program succeeded and cleaned up.
    pub(crate) fn assert_success(&self) {
        assert_eq!((self.code, self.litter.len()), (Some(0), 0), "{self:#?}");
    }

    /// Checks that the program ended with this code, said why on standard error, and cleaned up.
    pub(crate) fn assert_failure(&self, code: i32, why: &str) {
        assert_eq!((self.code, self.litter.len()), (Some(code), 0), "{self:#?}");
        assert!(self.stderr.contains(why), "{why:?} is not in {self:#?}");
    }

    /// Returns a row of the flash sale's report.
    pub(crate) fn row(&self, name: &str) -> &str {
        let rows = self.stdout.lines().filter_map(|line| line.strip_prefix(name));
        let mut values = rows.filter(|rest| rest.starts_with(' ')).map(str::trim);
        values.next().unwrap_or_else(|| panic!("no row {name:?} in {self:#?}"))
    }

    /// Returns the number that a row of the flash sale's report starts with.
    pub(crate) fn number(&self, name: &str) -> u32 {
        self.row(name).split(' ').next().unwrap().parse().unwrap()
    }
}

/// Waits until something is there.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a request to `http://host:port` and returns the status and the rest of the answer.
pub(crate) fn http(server: &str, method: &str, path: &str) -> (u16, String) {
    let address = server.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}
