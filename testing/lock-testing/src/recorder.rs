//! Records a history while it happens.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::history::Record;
use lock_store::contract::event::{LockEvent, LockEventKind, LockObserver};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// Appends the actions of this process to a file. Other processes append to the same file.
///
/// As a [`LockObserver`], it records grants, renewals, losses and ends by itself. The test must record releases
/// *before* it releases, and the resource must record writes.
///
/// See the example of [`History`](crate::History).
#[derive(Debug)]
pub struct Recorder {
    file: File,
    process: u32,
    clock: Clock,
    under_way: Mutex<HashMap<u64, UnderWay>>,
}

/// The known data of an acquire that has not ended.
#[derive(Debug)]
struct UnderWay {
    began: Timestamp,
    /// The end of its lease, once the lock is granted.
    deadline: Timestamp,
}

impl Recorder {
    /// Opens the file. Creates it if needed.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be opened.
    #[must_use]
    pub fn append_to(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("the history can be written");
        Self { file, process: std::process::id(), clock: Clock::system(), under_way: Mutex::default() }
    }

    /// Writes one record: a [`Record`], or one of a history with other records.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be written: a history with gaps proves nothing.
    pub fn record(&self, record: &impl Serialize) {
        let record = serde_json::to_string(record).expect("a record is JSON");
        // One write call, because O_APPEND keeps one write of a process together, unless the process is killed in the
        // middle of it. A cut line must not run into the next one, so every record begins a new line.
        (&self.file).write_all(format!("\n{record}\n").as_bytes()).expect("the history can be written");
    }

    /// Records that the holder stops using a lock. Call it before releasing.
    pub fn release(&self, key: &LockKey, token: FencingToken) {
        let (at, key) = (self.now(), key.as_str().to_owned());
        self.record(&Record::Release { process: self.process, at, key, token: token.get() });
    }

    /// Records whether a resource admitted a write.
    pub fn write(&self, resource: &str, token: FencingToken, accepted: bool) {
        self.record(&Record::Write { resource: resource.to_owned(), at: self.now(), token: token.get(), accepted });
    }

    /// Records that a process was killed.
    pub fn killed(&self, process: u32) {
        self.record(&Record::Killed { process, at: self.now() });
    }

    /// Returns the time in the form of the records.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }
}

impl Recorder {
    /// Returns when the lease of an event ends. The event says how much of the lease was left when it was made. A stall
    /// between then and now would put the end too late. So the end is also computed from earlier knowledge, and the
    /// earlier of the two counts: no stall affects both.
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
            other => panic!("a history has no word for {other:?}"),
        };
        self.remove(attempt);
        self.record(&Record::End { process, attempt, at, how: how.to_owned() });
    }
}
