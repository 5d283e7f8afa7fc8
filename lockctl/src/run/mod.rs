//! Runs a command under a lock.
//!
//! Three processes of this program take part. The *holder* takes the lock, keeps it, and ends the command when
//! the lock is lost. The command itself starts as a *launcher*, which asks the kernel to kill it with its
//! parent and then becomes the command. The *sentinel* ensures that no process of the command outlives the
//! lock when the holder cannot do so, because it was killed or is stopped.
//!
//! The command can always be ended. No step on the way there waits for something without a bound: neither for a process
//! that is stopped, nor for a reader of the messages.

mod command;
mod holder;
mod launcher;
mod running;
mod sentinel;
mod signals;
mod terminal;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

pub(crate) use holder::run;

/// The lock stayed taken.
const BUSY: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;
/// The store could not be reached, or refused the request.
const UNAVAILABLE: u8 = 69;
/// The command cannot be executed, or does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The argument with which a part of this program is started, in place of a command.
const LAUNCHER: &str = "@launcher";
const SENTINEL: &str = "@sentinel";

/// How long remaining processes may take to end after they were killed, and how long the release
/// may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Variables of this program that hold passwords.
const SECRETS: [&str; 1] = ["LOCK_URL"];

/// Runs another part, if this process was started for that.
pub(crate) fn play_part() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let part = arguments.next()?;
    if part == LAUNCHER {
        Some(launcher::launch(arguments))
    } else if part == SENTINEL {
        Some(sentinel::watch(arguments))
    } else {
        None
    }
}

/// Starts a part of this same program.
fn spawn_part(name: &str, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
    let itself = itself();
    let mut command = Command::new(&itself);
    command.arg(name);
    prepare(&mut command);
    command.spawn().map_err(|error| {
        let advice =
            if Path::new("/proc/self").exists() { "" } else { "; mount /proc, by which it finds its own file" };
        io::Error::new(error.kind(), format!("lockctl cannot start {} once more: {error}{advice}", itself.display()))
    })
}

/// Returns where this program is. Without `/proc` it is looked for by the name with which it was started.
fn itself() -> PathBuf {
    // Leads to the same program, even if its file was replaced since.
    let link = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && link.exists() {
        return link.to_owned();
    }
    let name = || std::env::args_os().next().map(PathBuf::from).unwrap_or_else(|| "lockctl".into());
    std::env::current_exe().unwrap_or_else(|_| name())
}
