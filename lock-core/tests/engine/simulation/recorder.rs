//! A record of what the processes of one run did, and what it says about the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockEvent, LockEventKind, LockGuard, LockObserver};
use lock_testing::{History, Record, Verdict};
use tokio::time::Instant;

/// The keys that the processes of a run lock.
pub(crate) const KEYS: [&str; 2] = ["a", "b"];

/// Writes down on virtual time what one manager, a process of its own, does.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) process: u32,
    book: Arc<Mutex<Book>>,
}

/// The actions of all processes of one run.
pub(crate) struct Book {
    origin: Instant,
    records: Vec<Record>,
    acquires: HashMap<u64, SeenAcquire>,
    /// The process that is cut off from the store, and may wait for ever.
    pub(crate) dead: Option<u32>,
    pub(crate) trace: Vec<String>,
}

/// One acquire.
#[derive(Clone, Debug)]
struct SeenAcquire {
    /// The number within this run, because attempt numbers of the process include other tests.
    number: u64,
    process: u32,
    key: String,
    token: u64,
    started: Duration,
    granted: Option<Duration>,
    /// When its caller stopped waiting.
    answered: Option<Duration>,
    /// When its body stopped using the lock.
    left: Option<Duration>,
}

impl Book {
    pub(crate) fn open() -> Arc<Mutex<Self>> {
        let (records, acquires, trace) = (Vec::new(), HashMap::new(), Vec::new());
        Arc::new(Mutex::new(Self { origin: Instant::now(), records, acquires, dead: None, trace }))
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn record(&mut self, record: Record) {
        self.trace.push(record.to_string());
        self.records.push(record);
    }

    fn acquire(&mut self, process: u32, attempt: u64, key: &str) -> &mut SeenAcquire {
        let (number, started) = (self.acquires.len() as u64, self.now());
        let (key, token) = (key.to_owned(), 0);
        self.acquires.entry(attempt).or_insert(SeenAcquire {
            number,
            process,
            key,
            token,
            started,
            granted: None,
            answered: None,
            left: None,
        })
    }

    pub(crate) fn check(&self) -> Verdict {
        History::new(self.records.clone()).check()
    }

    /// Returns the longest time, from `from` on, that a key was free while somebody waited for it.
    pub(crate) fn longest_idle(&self, from: Duration) -> Duration {
        let mut longest = Duration::ZERO;
        for key in KEYS {
            // Each change: when it happens, and by how much the numbers of holders and waiters of
            // the key change.
            let mut changes: Vec<(Duration, i32, i32)> = Vec::new();
            for acquire in self.acquires.values().filter(|acquire| acquire.key == key) {
                let end = self.now();
                if Some(acquire.process) != self.dead {
                    changes.extend([(acquire.started, 0, 1), (acquire.answered.unwrap_or(end), 0, -1)]);
                }
                if let Some(granted) = acquire.granted {
                    changes.extend([(granted, 1, 0), (acquire.left.unwrap_or(end), -1, 0)]);
                }
            }
            changes.sort_unstable();
            let (mut holders, mut waiters, mut idle_since) = (0, 0, None);
            for (at, held, waiting) in changes {
                if let Some(since) = idle_since {
                    longest = longest.max(at.saturating_sub(from.max(since)));
                }
                holders += held;
                waiters += waiting;
                idle_since = (holders == 0 && waiters > 0).then(|| idle_since.unwrap_or(at));
            }
        }
        longest
    }

    /// Returns the most callers that came later than another and were served first.
    pub(crate) fn longest_bypass(&self) -> usize {
        let bypassed = |acquire: &SeenAcquire| {
            let until = acquire.answered.unwrap_or(Duration::MAX);
            let later = |other: &SeenAcquire| {
                other.key == acquire.key
                    && other.started > acquire.started
                    && other.granted.is_some_and(|granted| granted < until)
            };
            self.acquires.values().filter(|other| later(other)).count()
        };
        self.acquires.values().map(bypassed).max().unwrap_or(0)
    }
}

impl Recorder {
    pub(crate) fn new(process: u32, book: &Arc<Mutex<Book>>) -> Self {
        Self { process, book: Arc::clone(book) }
    }

    /// Notes that a body is done with its lock, whose `min_hold` was `kept`. Call it before releasing.
    pub(crate) fn left(&self, guard: &LockGuard, kept: Duration) {
        let mut book = self.book.lock().unwrap();
        let (key, token, left) = (guard.key().as_str().to_owned(), guard.token().get(), book.now());
        let acquire = book.acquires.values_mut().find(|acquire| acquire.key == key && acquire.token == token);
        if let Some(acquire) = acquire {
            let kept_until = acquire.granted.unwrap_or_default() + kept;
            acquire.left = Some(left.max(kept_until));
        }
        book.record(Record::Release { process: self.process, at: nanos(left), key, token });
    }
}

impl LockObserver for Recorder {
    fn on_event(&self, event: &LockEvent<'_>) {
        let mut book = self.book.lock().unwrap();
        let (process, now) = (self.process, book.now());
        let acquire = book.acquire(process, event.attempt, event.key.as_str());
        let (attempt, at) = (acquire.number, nanos(now));
        let deadline = |left: Duration| at + nanos(left);
        let record = match &event.kind {
            LockEventKind::WaitStarted => Record::Start { process, attempt, at },
            LockEventKind::Acquired { token, lease_left, .. } => {
                (acquire.token, acquire.granted, acquire.answered) = (token.get(), Some(now), Some(now));
                let (key, token, deadline) = (acquire.key.clone(), token.get(), deadline(*lease_left));
                Record::Grant { process, attempt, at, key, token, deadline }
            }
            LockEventKind::Renewed { lease_left, .. } => {
                Record::Renew { process, attempt, deadline: deadline(*lease_left) }
            }
            LockEventKind::Lost { .. } => {
                book.record(Record::Lost { process, attempt, at });
                Record::End { process, attempt, at, how: "lost".to_owned() }
            }
            kind if kind.is_terminal() => {
                acquire.answered = acquire.answered.or(Some(now));
                // The acquire was given up right after the grant, so the body did not run.
                acquire.left = acquire.left.or(Some(now));
                Record::End { process, attempt, at, how: "ended".to_owned() }
            }
            _ => return,
        };
        book.record(record);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}
