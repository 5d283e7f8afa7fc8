//! Writes a history down while it happens.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::contract::event::{LockEvent, LockEventKind, LockObserver};
use crate::testing::history::Record;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::system::clock::{Clock, Timestamp};
use crate::types::system::sync::Mutex;

/// Appends what this process does to a file that other processes append to as well.
///
/// As a [`LockObserver`] it writes down grants, renewals, losses and ends by itself. Releases must be
/// recorded by the test, *before* it releases, and writes by the resource.
///
/// See the example of [`History`](crate::testing::History).
#[derive(Debug)]
pub struct Recorder {
    file: File,
    process: u32,
    clock: Clock,
    under_way: Mutex<HashMap<u64, UnderWay>>,
}

/// What is known of an acquire that has not ended.
#[derive(Debug)]
struct UnderWay {
    began: Timestamp,
    /// The end of its lease, once the lock is granted.
    deadline: Timestamp,
}

impl Recorder {
    /// Opens the file, creating it if need be.
    ///
    /// # Panics
    ///
    /// If the file cannot be opened.
    #[must_use]
    pub fn append_to(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("the history can be written");
        Self { file, process: std::process::id(), clock: Clock::system(), under_way: Mutex::default() }
    }

    /// Writes one record.
    ///
    /// # Panics
    ///
    /// If the file cannot be written: a history with holes proves nothing.
    pub fn record(&self, record: &Record) {
        // In one write, because O_APPEND keeps one write of a process whole, unless the process is killed in the middle of
        // it. So every line begins a new one.
        (&self.file).write_all(format!("\n{record}\n").as_bytes()).expect("the history can be written");
    }

    /// Writes down that the holder stops using a lock. Call it before releasing.
    pub fn release(&self, key: &LockKey, token: FencingToken) {
        let (at, key) = (self.now(), key.as_str().to_owned());
        self.record(&Record::Release { process: self.process, at, key, token: token.get() });
    }

    /// Writes down what a resource did with a write.
    pub fn write(&self, resource: &str, token: FencingToken, accepted: bool) {
        self.record(&Record::Write { resource: resource.to_owned(), at: self.now(), token: token.get(), accepted });
    }

    /// Writes down that a process was killed.
    pub fn killed(&self, process: u32) {
        self.record(&Record::Killed { process, at: self.now() });
    }

    /// Returns the time as records state it.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }
}

impl Recorder {
    /// Returns when the lease of an event ends. The event says how much of the lease was left at its moment, and a
    /// stall between then and now would put the end too late. So the end is also computed from what was known before,
    /// and the earlier of the two counts: no stall affects both.
    fn deadline(&self, event: &LockEvent<'_>, now: Timestamp) -> Timestamp {
        let mut under_way = self.under_way.lock();
        let known = under_way.entry(event.attempt).or_insert(UnderWay { began: now, deadline: now });
        let (left, came_about) = match &event.kind {
            LockEventKind::Acquired { waited, lease_left, .. } => (*lease_left, known.began.after(*waited)),
            LockEventKind::Renewed { lease_was_left, lease_left, .. } => {
                (*lease_left, known.deadline.before(*lease_was_left))
            }
            _ => return now,
        };
        known.deadline = came_about.min(now).after(left);
        known.deadline
    }

    fn remove(&self, attempt: u64) {
        self.under_way.lock().remove(&attempt);
    }
}

impl LockObserver for Recorder {
    fn on_event(&self, event: &LockEvent<'_>) {
        let (process, attempt, now) = (self.process, event.attempt, self.clock.now());
        let at = now.as_nanos();
        let how = match &event.kind {
            LockEventKind::WaitStarted => {
                self.deadline(event, now);
                return self.record(&Record::Start { process, attempt, at });
            }
            LockEventKind::Acquired { token, .. } => {
                let (key, token) = (event.key.as_str().to_owned(), token.get());
                let deadline = self.deadline(event, now).as_nanos();
                return self.record(&Record::Grant { process, attempt, at, key, token, deadline });
            }
            LockEventKind::Renewed { .. } => {
                let deadline = self.deadline(event, now).as_nanos();
                return self.record(&Record::Renew { process, attempt, deadline });
            }
            LockEventKind::Lost { reason, .. } => {
                self.record(&Record::Lost { process, attempt, at });
                reason.as_str()
            }
            LockEventKind::Released { .. } => "released",
            LockEventKind::Abandoned { .. } => "abandoned",
            LockEventKind::Busy { .. } => "busy",
            LockEventKind::TimedOut { .. } => "timed_out",
            LockEventKind::Cancelled { .. } => "cancelled",
            LockEventKind::Failed { .. } => "failed",
            LockEventKind::Contended { .. } | LockEventKind::RenewFailed { .. } => return,
        };
        self.remove(attempt);
        self.record(&Record::End { process, attempt, at, how: how.to_owned() });
    }
}
