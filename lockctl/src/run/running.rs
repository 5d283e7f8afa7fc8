//! The command, from its start to its end.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use lock_core::store::text::visible;
use lock_core::{LockGuard, LossReason};
use rustix::io::Errno;
use rustix::process::{Signal, WaitStatus};
use tokio::time::{Instant, interval, sleep_until};

use crate::args::Run;
use crate::end::complain;
use crate::run::command::{self, Target};
use crate::run::sentinel::Sentinel;
use crate::run::signals::{Event, Events, stop_ourselves};
use crate::run::terminal::{self, Foreground, Stopped};
use crate::run::{LOST, PATIENCE};

/// How often to check whether processes remain.
const LOOK: Duration = Duration::from_millis(20);

/// The command, while it runs.
pub(super) struct Running<'a> {
    guard: &'a LockGuard,
    events: &'a mut Events,
    target: Target,
    sentinel: Sentinel,
    /// For a command in its own process group.
    foreground: Option<Foreground>,
    grace: Duration,
    ended: Option<WaitStatus>,
    lost: Option<LossReason>,
    kill_at: Option<Instant>,
    /// When processes that were killed are left alone.
    give_up_at: Option<Instant>,
    /// It was said that a signal is refused.
    is_refused: bool,
}

/// How a command ended.
pub(super) struct Outcome {
    pub(super) code: u8,
    /// The key with which somebody at the terminal ended it.
    pub(super) key: Option<Signal>,
}

/// Starts the command.
pub(super) fn start<'a>(wanted: &Run, guard: &'a LockGuard, events: &'a mut Events) -> io::Result<Running<'a>> {
    // No clock counts further.
    let grace = wanted.grace.min(Duration::from_secs(1 << 30));
    let settings = terminal::settings();
    let mut sentinel = Sentinel::start(grace, events)?;
    let environment = [
        ("LOCK_KEY", guard.key().as_str().to_owned()),
        ("LOCK_TOKEN", guard.token().to_string()),
        ("LOCK_DEADLINE", deadline(guard).to_string()),
    ];
    let target = command::start(&wanted.command, &environment, wanted.foreground, wanted.pass_url)?;
    events.command = Some(target.pid());
    sentinel.watch(target);
    sentinel.lease(guard.remaining());
    let foreground = match target {
        Target::Group(group) => Some(Foreground::new(group.as_raw_nonzero().get(), settings)),
        Target::Process(_) => None,
    };
    Ok(Running {
        guard,
        events,
        target,
        sentinel,
        foreground,
        grace,
        ended: None,
        lost: None,
        kill_at: None,
        give_up_at: None,
        is_refused: false,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "for the command, which may know no other clock; nothing is decided by it"
)]
fn deadline(guard: &LockGuard) -> u128 {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + guard.remaining()).as_millis()
}

impl Running<'_> {
    /// Waits until the command and everything it started have ended, or ends them.
    pub(super) async fn finish(mut self) -> Outcome {
        let mut beat = interval((self.guard.remaining() / 6).clamp(LOOK, PATIENCE));
        let mut look = interval(LOOK);
        while self.ended.is_none() || self.target.is_left() {
            tokio::select! {
                biased;
                reason = self.guard.lost(), if self.lost.is_none() => self.lose(reason),
                event = self.events.next() => self.receive(event),
                _ = beat.tick() => self.sentinel.lease(self.guard.remaining()),
                () = at(self.kill_at), if self.kill_at.is_some() => {
                    self.signal(Signal::KILL);
                    (self.kill_at, self.give_up_at) = (None, Some(Instant::now() + PATIENCE));
                }
                _ = look.tick(), if self.ended.is_some() => {
                    if self.give_up_at.is_some_and(|at| at <= Instant::now()) && self.target.is_left() {
                        complain("processes of the command do not end, although they were killed; they are left alone");
                        break;
                    }
                }
            }
        }
        self.over()
    }

    fn lose(&mut self, reason: LossReason) {
        self.lost = Some(reason);
        // First, for a message may wait for a terminal.
        self.ask_to_end(Signal::TERM);
        let what = if self.ended.is_none() { "the command" } else { "what the command left behind" };
        complain(&visible(&format!("the lock {} was lost: {reason}; ending {what}", self.guard.key())));
    }

    fn receive(&mut self, event: Event) {
        match event {
            Event::Signal(Signal::TSTP) => {
                self.target.suspend();
                if let Some(foreground) = &mut self.foreground {
                    foreground.take_back();
                }
                stop_ourselves(false);
                self.resume();
            }
            Event::Signal(Signal::CONT) => self.resume(),
            Event::Signal(signal @ (Signal::USR1 | Signal::USR2)) => self.signal(signal),
            Event::Signal(signal) => self.ask_to_end(signal),
            Event::Stopped(by) => self.stopped(by),
            Event::Ended(status) => {
                self.ended = Some(status);
                if self.target.is_left() {
                    self.ask_to_end(Signal::TERM);
                    let then = if self.lost.is_none() { "; the lock is released when they have ended" } else { "" };
                    complain(&format!("the command has ended and left processes behind, which get TERM{then}"));
                }
            }
        }
    }

    /// Sends a signal that asks the processes to end. From the first one on, they have the grace.
    fn ask_to_end(&mut self, signal: Signal) {
        self.signal(signal);
        if self.give_up_at.is_none() {
            self.kill_at = self.kill_at.or(Some(Instant::now() + self.grace));
        }
    }

    fn signal(&mut self, signal: Signal) {
        if self.target.signal(signal) == Err(Errno::PERM) && !std::mem::replace(&mut self.is_refused, true) {
            complain(
                "the command belongs to another user and cannot be signalled; the lock is held until it ends by itself: \
                 run lockctl as that user, sudo lockctl in place of lockctl … sudo",
            );
        }
    }

    /// Continues the command after this process was stopped.
    fn resume(&mut self) {
        if let Some(foreground) = &mut self.foreground {
            foreground.give_back();
        }
        let _ = self.target.signal(Signal::CONT);
    }

    fn stopped(&mut self, by: i32) {
        let for_access = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&by);
        match self.foreground.as_mut().map_or(Stopped::Leave, |foreground| foreground.stopped(for_access)) {
            Stopped::Continue => {
                let _ = self.target.signal(Signal::CONT);
            }
            Stopped::Suspend => {
                stop_ourselves(true);
                // If no shell is there that could continue it, Ctrl-Z stops nothing.
                if by == Signal::TSTP.as_raw() {
                    self.resume();
                }
            }
            Stopped::Leave => complain(&format!(
                "the command was stopped by signal {by}; the lock is held until it ends: kill -CONT {} continues it, \
                 kill -TERM {0} ends it",
                std::process::id(),
            )),
        }
    }

    fn over(self) -> Outcome {
        self.sentinel.dismiss(self.events);
        let signal = self.ended.and_then(WaitStatus::terminating_signal);
        let had_terminal = self.foreground.is_some_and(|foreground| foreground.put_back(signal.is_some()));
        let key = [Signal::INT, Signal::QUIT].into_iter().find(|key| had_terminal && signal == Some(key.as_raw()));
        let code = match (self.ended, self.lost) {
            (Some(status), None) => match self.guard.ensure_held() {
                Ok(()) => code(status),
                // Both may be seen at once after this process was stopped and continued.
                Err(error) => {
                    complain(&error.to_string());
                    LOST
                }
            },
            _ => LOST,
        };
        Outcome { code, key }
    }
}

/// Returns the code that shells report.
fn code(status: WaitStatus) -> u8 {
    status.exit_status().map_or_else(|| killed_by(status.terminating_signal().unwrap_or(0)), low_byte)
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Returns the code that shells report for a command that was ended by a signal.
pub(super) fn killed_by(signal: i32) -> u8 {
    low_byte(128 + signal)
}

fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}
