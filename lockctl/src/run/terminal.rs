//! The terminal: one process group of its session may read from it and gets its keys, as job-control shells arrange it.

use std::fs::File;
use std::io::{IsTerminal as _, stdin, stdout};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that controls this process. A group of processes has the number 0 if this namespace does not show it.
struct Terminal(OwnedFd);

impl Terminal {
    /// Opens it. It is opened for each use: it may be gone meanwhile.
    fn open() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok();
        // A container may lack the device.
        let terminal = device.map(OwnedFd::from).or_else(|| rustix::io::dup(stdin()).ok())?;
        Some(Self(terminal))
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    fn give(&self, group: Pid) {
        let _ = tcsetpgrp(&self.0, group);
    }
}

/// Moves the group of this process into the foreground in place of the group of its parent, before it becomes the command:
/// then its first read from the terminal does not stop it.
///
/// If input or output is a pipe, a pager or another part of the pipeline may need the terminal. Then the command gets it
/// when it first asks for it.
pub(super) fn enter_foreground(parent: i32) {
    if stdin().is_terminal()
        && stdout().is_terminal()
        && let Some(terminal) = Terminal::open()
        && terminal.foreground() == getpgid(Some(Pid::from_raw(parent))).ok()
    {
        terminal.give(getpgrp());
    }
}

/// Decides which process group has the terminal while a command runs in its own group.
pub(super) struct Foreground {
    group: Pid,
    own: Pid,
    /// The settings of the terminal before the command, if this process could change them.
    settings: Option<Termios>,
    /// The command had the terminal when it was stopped.
    had_it: bool,
}

/// The reaction to a command that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It has the terminal now.
    Continue,
    /// Its whole job stops, as it would without this process, so that the shell sees it.
    Suspend,
    /// Another process stopped only the command.
    Leave,
}

/// Returns the settings of the terminal if this process is in its foreground.
pub(super) fn settings() -> Option<Termios> {
    let terminal = Terminal::open()?;
    (terminal.foreground() == Some(getpgrp())).then(|| tcgetattr(&terminal.0).ok()).flatten()
}

impl Foreground {
    pub(super) fn new(group: i32, settings: Option<Termios>) -> Self {
        Self { group: Pid::from_raw(group), own: getpgrp(), settings, had_it: false }
    }

    /// Decides about a stop. `for_access` is one by which the kernel refused the terminal to the command.
    pub(super) fn stopped(&mut self, for_access: bool) -> Stopped {
        let Some((terminal, foreground)) = Terminal::open().and_then(|it| it.foreground().map(|group| (it, group)))
        else {
            return Stopped::Leave;
        };
        if for_access && foreground == self.own {
            terminal.give(self.group);
            return Stopped::Continue;
        }
        match (for_access, foreground == self.group) {
            // It got the terminal after it was refused.
            (true, true) => Stopped::Continue,
            (true, false) => Stopped::Suspend,
            (false, true) => {
                self.take_back();
                Stopped::Suspend
            }
            (false, false) => Stopped::Leave,
        }
    }

    /// Takes the terminal from the command, until it is continued.
    pub(super) fn take_back(&mut self) {
        if let Some(terminal) = Terminal::open()
            && terminal.foreground() == Some(self.group)
        {
            terminal.give(self.own);
            self.had_it = true;
        }
    }

    /// Returns the terminal to a command that had it, if the shell has put this process into the foreground again.
    pub(super) fn give_back(&mut self) {
        if self.had_it
            && let Some(terminal) = Terminal::open()
            && terminal.foreground() == Some(self.own)
        {
            terminal.give(self.group);
            self.had_it = false;
        }
    }

    /// Takes the terminal back from a command that has ended. Returns whether the command had it. A command that was
    /// killed may have left the terminal without echo, so its settings are put back too.
    pub(super) fn put_back(&self, was_killed: bool) -> bool {
        let Some(terminal) = Terminal::open() else { return false };
        let Some(foreground) = terminal.foreground() else { return false };
        // If the command was a shell, the foreground may be one of its jobs, which is gone too.
        let is_gone = || self.settings.is_some() && killpg(foreground, None) == Err(Errno::ESRCH);
        if foreground != self.group && !is_gone() {
            return false;
        }
        terminal.give(self.own);
        if let Some(settings) = self.settings.as_ref().filter(|_| was_killed) {
            let _ = tcsetattr(&terminal.0, SetArg::TCSANOW, settings);
        }
        foreground == self.group
    }
}
