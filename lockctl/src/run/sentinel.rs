//! The process that ends the command when the holder cannot.
//!
//! The holder writes the remaining lease into a pipe. The pipe closes when the holder is killed, and stays
//! silent for too long when the holder is stopped.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, ExitCode, Stdio};
use std::time::Duration;

use lock_core::{Clock, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use crate::end::complain;
use crate::run::command::Target;
use crate::run::signals::{Events, block_all};
use crate::run::{SENTINEL, spawn_part};

/// How much later than the holder the sentinel acts: the holder knows better why the lease ended.
const LATER: Duration = Duration::from_millis(250);

/// The sentinel, as its holder sees it. When this is dropped without having been dismissed, it kills the command.
pub(super) struct Sentinel {
    orders: ChildStdin,
}

impl Sentinel {
    /// Starts the sentinel, where signals for this process, its command and its terminal do not
    /// reach it.
    pub(super) fn start(grace: Duration, events: &mut Events) -> io::Result<Self> {
        let mut process = spawn_part(SENTINEL, |sentinel| {
            sentinel.arg(grace.as_millis().to_string()).env_clear().current_dir("/").process_group(0);
            sentinel.stdin(Stdio::piped()).stdout(Stdio::null());
        })?;
        events.sentinel = Some(Pid::from_child(&process));
        let orders = process.stdin.take().ok_or_else(|| io::Error::other("it has no standard input"))?;
        // If the sentinel is stopped, the holder must not wait for it.
        rustix::io::ioctl_fionbio(&orders, true)?;
        Ok(Self { orders })
    }

    /// Tells the sentinel which processes to end.
    pub(super) fn watch(&mut self, target: Target) {
        let (kind, pid) = match target {
            Target::Group(group) => ("group", group),
            Target::Process(process) => ("process", process),
        };
        self.order(&format!("{kind} {}\n", pid.as_raw_nonzero()));
    }

    /// Tells the sentinel how long the lock is held, unless a later message extends it.
    pub(super) fn lease(&mut self, left: Duration) {
        self.order(&format!("lease {}\n", left.as_millis()));
    }

    /// Ends the sentinel, after the command.
    pub(super) fn dismiss(self, events: &mut Events) {
        // Before its pipe closes, upon which it would kill the command.
        events.end_sentinel();
        drop(self.orders);
    }

    /// Writes a whole line of a few bytes: a pipe takes it completely, or not at all.
    fn order(&mut self, line: &str) {
        // If the sentinel has gone, the kernel still kills the command together with this process.
        let _ = self.orders.write_all(line.as_bytes());
    }
}

/// The state of the sentinel: what it knows, and what it has done.
struct Watch {
    clock: Clock,
    grace: Duration,
    target: Option<Target>,
    /// When the lease ends.
    ends_at: Option<Timestamp>,
    /// When processes that have not ended by themselves are killed.
    kill_at: Option<Timestamp>,
    /// They were killed.
    done: bool,
}

/// Runs as the sentinel.
pub(super) fn watch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // A signal to every process of this program, for example by `killall`, is for the holder.
    block_all();
    let grace = arguments.next().and_then(|grace| grace.to_str()?.parse().ok());
    let grace = Duration::from_millis(grace.unwrap_or_default());
    let clock = Clock::system();
    let mut watch = Watch { clock, grace, target: None, ends_at: None, kill_at: None, done: false };
    let (mut orders, mut text, mut chunk) = (io::stdin().lock(), String::new(), [0; 256]);
    loop {
        // At most one second: this clock stands still while the machine sleeps, and the lease does
        // not.
        let pause = watch.next().map_or(Duration::MAX, |at| at.since(watch.clock.now())).min(Duration::from_secs(1));
        let pause = Timespec { tv_sec: i64::from(pause.as_secs() > 0), tv_nsec: pause.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => match orders.read(&mut chunk) {
                Ok(length @ 1..) => {
                    text.push_str(&String::from_utf8_lossy(&chunk[..length]));
                    while let Some((line, rest)) = text.split_once('\n') {
                        watch.obey(line);
                        text = rest.to_owned();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            },
        }
        watch.act();
    }
    if !watch.done
        && let Some(target) = watch.target
    {
        let _ = target.signal(Signal::KILL);
    }
    ExitCode::SUCCESS
}

impl Watch {
    /// Returns when there is something to do next.
    fn next(&self) -> Option<Timestamp> {
        [self.ends_at, self.kill_at].into_iter().flatten().min()
    }

    fn obey(&mut self, line: &str) {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        let pid = || Pid::from_raw(number.parse().ok()?);
        match word {
            "group" => self.target = pid().map(Target::Group),
            "process" => self.target = pid().map(Target::Process),
            // A lease that is over is never revived.
            "lease" if self.kill_at.is_none() => {
                let left = Duration::from_millis(number.parse().unwrap_or_default());
                self.ends_at = Some(self.clock.now().after(left + LATER));
            }
            _ => {}
        }
    }

    fn act(&mut self) {
        let now = self.clock.now();
        let Some(target) = self.target.filter(|_| !self.done) else { return };
        if self.ends_at.take_if(|at| *at <= now).is_some() {
            let _ = target.signal(Signal::TERM);
            complain("the lease ended and the process that should renew it does nothing; ending the command");
            self.kill_at = Some(now.after(self.grace));
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            let _ = target.signal(Signal::KILL);
            self.done = true;
        }
    }
}
