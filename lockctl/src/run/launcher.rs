//! The process that becomes the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, getppid};

use crate::end::complain;
use crate::run::signals::{block_nothing, block_ttou};
use crate::run::terminal::enter_foreground;
use crate::run::{LOST, NOT_EXECUTABLE, NOT_FOUND};

/// Makes the kernel kill this process with its parent, then becomes the command. Returns only if
/// that fails.
pub(super) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let Some(program) = arguments.next() else { return ExitCode::from(NOT_FOUND) };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        complain(&format!("the command was not run: it could not be tied to this process: {error}"));
        return ExitCode::from(NOT_EXECUTABLE);
    }
    // The parent may have died before that.
    let Some(parent) = parent.filter(|parent| getppid() == Some(*parent)) else { return ExitCode::from(LOST) };
    block_ttou();
    enter_foreground(parent.as_raw_nonzero().get());
    // The command inherits it: no signal is blocked.
    block_nothing();
    let error = Command::new(&program).args(arguments).exec();
    complain(&format!("cannot run {}: {error}", program.to_string_lossy()));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}
