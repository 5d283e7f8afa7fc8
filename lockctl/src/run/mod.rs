//! Runs a command under a lock.
//!
//! Three processes of this program take part. The *holder* takes the lock, keeps it, and ends the command when
//! the lock is lost. The command itself starts as a *launcher*, which asks the kernel to kill it with its
//! parent and then becomes the command. The *sentinel* ensures that no process of the command outlives the
//! lock when the holder cannot do so, because it was killed or is stopped.

mod command;
mod holder;
mod launcher;
mod sentinel;
mod signals;

use std::process::{Command, ExitCode};

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

/// Prepares to start a part of this same program, even if its file was replaced since.
fn part(name: &str) -> Command {
    let itself = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() };
    let mut command = Command::new(itself.unwrap_or_else(|_| "lockctl".into()));
    command.arg(name);
    command
}
