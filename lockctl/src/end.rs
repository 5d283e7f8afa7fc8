//! How a command ends, and what is said when it cannot go on.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use lock_core::LockError;
use lock_core::store::text::visible;

/// How a command ended; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok = 0,
    /// Not found, or not held by the owner that was named.
    NotFound = 1,
    Usage = 2,
    Unavailable = 3,
    /// Reached, but refused: credentials, permissions, a key that is not a lock.
    Refused = 4,
    /// The lock stayed taken: the code of `run` for that.
    Busy = 75,
}

/// The advice for a URL.
pub(crate) const SET_IT: &str = " (set it with --url or LOCK_URL)";

/// Why a command could not go on.
pub(crate) enum Failure {
    /// The URL is wrong.
    Url(LockError),
    Lock(LockError),
    /// The reader of our output has gone, or the disk is full.
    Output(io::Error),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs this to its end, or says why it cannot start. A look-up of a name that is still in flight ends with this process: without that,
/// a name server that does not answer would keep the process for minutes.
pub(crate) fn run_to_end<T>(work: impl Future<Output = T>) -> Option<T> {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let end = runtime.block_on(work);
            runtime.shutdown_background();
            Some(end)
        }
        Err(error) => {
            complain(&format!("cannot start: {error}; raise the limit of open files"));
            None
        }
    }
}

/// Lines for standard error, and requests to say when those before are written.
static LINES: OnceLock<Sender<Print>> = OnceLock::new();

enum Print {
    Line(String),
    /// A line that the next one overwrites.
    Passing(String),
    Flush(Sender<()>),
}

/// Prints an error for a person.
pub(crate) fn complain(what: &str) {
    print_line(format!("lockctl: {}", visible(what)));
}

/// Prints a line on standard error, by a thread of its own: a terminal that stands still, or a pipe that nobody reads, blocks
/// its writer, and the command that runs must be ended all the same.
pub(crate) fn print_line(line: String) {
    print(Print::Line(line));
}

/// Prints a line on a terminal that the next line overwrites, and that [`flush`] removes.
pub(crate) fn print_passing(line: String) {
    print(Print::Passing(line));
}

fn print(what: Print) {
    let lines = LINES.get_or_init(|| {
        let (lines, received) = channel();
        // If it cannot start, messages are lost.
        let _ = std::thread::Builder::new().spawn(move || {
            let mut clear = "";
            for what in received {
                let (text, next) = match &what {
                    Print::Line(line) => (format!("{clear}{line}\n"), ""),
                    Print::Passing(line) => (format!("{clear}{line}"), "\r\x1b[K"),
                    Print::Flush(_) => (clear.to_owned(), ""),
                };
                clear = next;
                let _ = io::stderr().write_all(text.as_bytes());
                if let Print::Flush(written) = what {
                    let _ = written.send(());
                }
            }
        });
        lines
    });
    let _ = lines.send(what);
}

/// Removes a passing line, and waits until the lines are printed, for a second at most.
pub(crate) fn flush() {
    let (written, all) = channel();
    if LINES.get().is_some_and(|lines| lines.send(Print::Flush(written)).is_ok()) {
        let _ = all.recv_timeout(Duration::from_secs(1));
    }
}
