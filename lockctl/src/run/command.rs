//! The command and the processes that it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use crate::run::{LAUNCHER, SECRETS, spawn_part};

/// The receiver of signals.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The command and everything it started that did not leave its process group.
    Group(Pid),
    /// The command alone, which shares the group of this process.
    Process(Pid),
}

impl Target {
    /// Returns the command itself, which leads its group.
    pub(super) fn pid(self) -> Pid {
        match self {
            Self::Group(pid) | Self::Process(pid) => pid,
        }
    }

    /// Sends a signal, and has processes that are stopped receive it: without CONT, a signal other than KILL waits until
    /// somebody else continues them. There may be no process left.
    pub(super) fn signal(self, signal: Signal) -> Result<(), Errno> {
        self.send(signal)?;
        if signal == Signal::KILL { Ok(()) } else { self.send(Signal::CONT) }
    }

    /// Stops the processes as Ctrl-Z does. They may catch or ignore it.
    pub(super) fn suspend(self) {
        let _ = self.send(Signal::TSTP);
    }

    fn send(self, signal: Signal) -> Result<(), Errno> {
        match self {
            Self::Group(group) => kill_process_group(group, signal),
            Self::Process(process) => kill_process(process, signal),
        }
    }

    /// Returns whether a process is left, once the command itself has been waited for.
    pub(super) fn is_left(self) -> bool {
        match self {
            // A process of another user, as behind sudo, is left too: it may not be signalled.
            Self::Group(group) => test_kill_process_group(group) != Err(Errno::SRCH),
            Self::Process(_) => false,
        }
    }
}

/// Starts a command with more environment variables, and without the secrets of this program unless they are passed on. It
/// is killed when the thread that calls this ends.
pub(super) fn start(
    command: &[OsString],
    environment: &[(&str, String)],
    foreground: bool,
    pass_url: bool,
) -> io::Result<Target> {
    let child = spawn_part(LAUNCHER, |launcher| {
        launcher
            .arg(std::process::id().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        if !pass_url {
            for name in SECRETS {
                launcher.env_remove(name);
            }
        }
        if !foreground {
            launcher.process_group(0);
        }
    })?;
    let pid = Pid::from_child(&child);
    Ok(if foreground { Target::Process(pid) } else { Target::Group(pid) })
}
