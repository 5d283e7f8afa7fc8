//! Signals for this process while it runs a command, and the ends and stops of its children.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// A signal for this process, or a change of the command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Signal(Signal),
    /// The command ended.
    Ended(WaitStatus),
    /// The command was stopped by this signal.
    Stopped(i32),
}

/// Receives events from the moment it is created. A signal that this process was started to ignore, as `nohup` does with
/// HUP, stays ignored, by the command too.
pub(super) struct Events {
    streams: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// Changes of the command that are not reported yet.
    queue: VecDeque<Event>,
    pub(super) command: Option<Pid>,
    pub(super) sentinel: Option<Pid>,
}

/// Returns the set of signals that are ignored, the first in the lowest bit. It is known on Linux only, without unsafe
/// code.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// Lets this process use its terminal from the background, where TTOU would stop it. Every other signal is let through, also
/// one that was blocked by the parent of this process. Threads that are started later inherit that.
pub(super) fn block_ttou() {
    let _ = SigSet::from(Blocked::SIGTTOU).thread_set_mask();
}

/// Lets every signal through.
pub(super) fn block_nothing() {
    let _ = SigSet::empty().thread_set_mask();
}

/// Lets no signal end this process but KILL.
pub(super) fn block_all() {
    let _ = SigSet::all().thread_block();
}

/// Stops this process as the terminal stops a job that is in the background, whole, or this process alone. The kernel
/// does nothing if no shell is there that could continue it. TTIN does that: TSTP is heard, and TTOU is blocked.
pub(super) fn stop_ourselves(whole_job: bool) {
    let _ = if whole_job {
        rustix::process::kill_current_process_group(Signal::TTIN)
    } else {
        kill_process(rustix::process::getpid(), Signal::TTIN)
    };
}

impl Events {
    pub(super) fn listen() -> io::Result<Self> {
        block_ttou();
        // Orphans of the command are ours to wait for, even if the first process of this system or container does not do so.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let all = [
            Signal::CHILD,
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::TERM,
            Signal::USR1,
            Signal::USR2,
            Signal::TSTP,
            Signal::CONT,
        ];
        let ignored = ignored();
        let heard = |name: &Signal| *name == Signal::CHILD || ignored >> (name.as_raw() - 1) & 1 == 0;
        let stream = |name: Signal| Ok((name, signal(SignalKind::from_raw(name.as_raw()))?));
        let streams = all.into_iter().filter(heard).map(stream).collect::<io::Result<_>>()?;
        Ok(Self { streams, queue: VecDeque::new(), command: None, sentinel: None })
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Waits for a signal that ends this process, before the command runs.
    pub(super) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Event::Signal(Signal::TSTP) => stop_ourselves(false),
                Event::Signal(signal) if signal != Signal::CONT => return signal,
                _ => {}
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Poll::Ready(event);
            }
            let received = |(name, stream): &mut (Signal, tokio::signal::unix::Signal)| {
                stream.poll_recv(cx).is_ready().then_some(*name)
            };
            match self.streams.iter_mut().find_map(received) {
                Some(Signal::CHILD) => self.reap(),
                Some(signal) => return Poll::Ready(Event::Signal(signal)),
                None => return Poll::Pending,
            }
        }
    }

    /// Waits for each child that has ended. Orphans are among them: as the first process of a container, and as a
    /// subreaper, this process gets those of the command.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            let is_over = !status.stopped();
            if Some(pid) == self.command {
                self.queue.push_back(status.stopping_signal().map_or(Event::Ended(status), Event::Stopped));
                self.command = self.command.filter(|_| !is_over);
            } else if Some(pid) == self.sentinel && is_over {
                self.sentinel = None;
            }
        }
    }

    /// Ends the sentinel, which may be stopped.
    pub(super) fn end_sentinel(&mut self) {
        if let Some(pid) = self.sentinel.take() {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
