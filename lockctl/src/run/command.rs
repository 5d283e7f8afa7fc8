//! The command and the processes that it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::Child;

use crate::run::{LAUNCHER, part};

/// The receiver of signals.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The command and everything it started that did not leave its process group.
    Group(Pid),
    /// The command alone, which shares the group of this process.
    Process(Pid),
}

impl Target {
    /// Sends a signal. There may be no process left to receive it.
    pub(super) fn signal(self, signal: Signal) {
        let _ = match self {
            Self::Group(group) => kill_process_group(group, signal),
            Self::Process(process) => kill_process(process, signal),
        };
    }

    /// Returns whether a process is left, once the command itself has been waited for.
    pub(super) fn is_left(self) -> bool {
        match self {
            Self::Group(group) => test_kill_process_group(group).is_ok(),
            Self::Process(_) => false,
        }
    }
}

/// Starts a command with more environment variables. It is killed when the thread that calls this
/// ends.
pub(super) fn start(
    command: &[OsString],
    environment: &[(&str, String)],
    foreground: bool,
) -> io::Result<(Child, Target)> {
    let mut launcher = part(LAUNCHER);
    launcher
        .arg(std::process::id().to_string())
        .args(command)
        .envs(environment.iter().map(|(name, value)| (name, value)));
    if !foreground {
        launcher.process_group(0);
    }
    let child = tokio::process::Command::from(launcher).spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
    Ok((child, if foreground { Target::Process(pid) } else { Target::Group(pid) }))
}
