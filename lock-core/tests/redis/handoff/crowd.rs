//! Many callers of several managers, each a process to the server, that want the same keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_core::{LockErrorKind, LockManager};
use lock_testing::{Recorder, Stopwatch};
use tokio::task::JoinSet;

use crate::support::{MS, Scratch};

/// How long each waits at most: longer than anything that the tests, and the machine, do to them.
const BUDGET: Duration = Duration::from_secs(60);

/// How to start a [`Crowd`].
pub(crate) struct Start<'a> {
    managers: &'a [LockManager],
    scratch: &'a Scratch,
    tasks: usize,
    keys: usize,
    hold: Duration,
    pause: Duration,
}

/// Callers that go on until they are stopped.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    over: AtomicBool,
    recorder: Recorder,
    grants: AtomicU64,
    keys: usize,
    /// Whether a stranger is inside, which must then be alone.
    stranger: AtomicBool,
    tally: Mutex<Tally>,
}

/// The result of a crowd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) grants: u64,
    pub(crate) by_process: Vec<u64>,
    pub(crate) timeouts: u64,
    /// Errors because no answer came.
    pub(crate) failures: u64,
    pub(crate) longest_wait: Duration,
    /// The most grants to others that began to wait later.
    pub(crate) longest_bypass: usize,
    /// When each acquire began and was granted.
    waits: Vec<(Instant, Instant)>,
}

impl Tally {
    pub(crate) fn poorest(&self) -> u64 {
        self.by_process.iter().copied().min().unwrap_or(0)
    }
}

impl<'a> Start<'a> {
    /// Sets how many callers each process has.
    pub(crate) fn tasks(self, tasks: usize) -> Self {
        Self { tasks, ..self }
    }

    pub(crate) fn keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Sets how long each holds. Zero does not even yield.
    pub(crate) fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Sets how long each stays away after it was served.
    pub(crate) fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    pub(crate) fn start(self) -> Crowd {
        let tally = Tally { by_process: vec![0; self.managers.len()], ..Tally::default() };
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            recorder: self.scratch.recorder(),
            grants: AtomicU64::new(0),
            keys: self.keys,
            stranger: AtomicBool::new(false),
            tally: Mutex::new(tally),
        });
        let mut tasks = JoinSet::new();
        for (process, locks) in self.managers.iter().enumerate() {
            locks.observe(self.scratch.recorder());
            for task in 0..self.tasks {
                let (locks, shared) = (locks.clone(), Arc::clone(&shared));
                tasks.spawn(work(locks, shared, process, task, self.hold, self.pause));
            }
        }
        Crowd { shared, tasks }
    }
}

async fn work(locks: LockManager, shared: Arc<Shared>, process: usize, task: usize, hold: Duration, pause: Duration) {
    let mut key = task;
    while !shared.over.load(Ordering::SeqCst) {
        key = (key + 1) % shared.keys;
        let (start, watch) = (Instant::now(), Stopwatch::start());
        let outcome = locks.lock(format!("crowd:{key}")).with_wait(BUDGET).await;
        let waited = start.elapsed();
        match outcome {
            Ok(guard) => {
                let (lost, now) = (guard.ensure_held().is_err(), start + waited);
                if !lost {
                    shared.note(process, start, now);
                }
                if hold > Duration::ZERO {
                    tokio::time::sleep(hold).await;
                }
                // The order matters: a lease that ran out before the stranger came does no harm.
                let stranger = shared.stranger.load(Ordering::SeqCst);
                assert!(!stranger || guard.ensure_held().is_err(), "with a stranger inside");
                shared.recorder.release(guard.key(), guard.token());
                // The verdict judges locks that could not be released or were lost.
                let _ = guard.release().await;
            }
            Err(error) => {
                watch.assert_within(BUDGET, &format!("giving up: {error}"));
                let mut tally = shared.tally.lock().unwrap();
                match error.kind() {
                    LockErrorKind::Timeout => tally.timeouts += 1,
                    LockErrorKind::Unavailable => tally.failures += 1,
                    _ => panic!("{error}"),
                }
            }
        }
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Shared {
    fn note(&self, process: usize, start: Instant, granted: Instant) {
        self.grants.fetch_add(1, Ordering::SeqCst);
        let mut tally = self.tally.lock().unwrap();
        tally.grants += 1;
        tally.by_process[process] += 1;
        tally.longest_wait = tally.longest_wait.max(granted - start);
        if tally.waits.len() < 5_000 {
            tally.waits.push((start, granted));
        }
    }
}

impl Crowd {
    pub(crate) fn of<'a>(managers: &'a [LockManager], scratch: &'a Scratch) -> Start<'a> {
        Start { managers, scratch, tasks: 1, keys: 1, hold: MS, pause: Duration::ZERO }
    }

    pub(crate) fn grants(&self) -> u64 {
        self.shared.grants.load(Ordering::SeqCst)
    }

    /// Sets whether a stranger has the key. Only for crowds of one key.
    pub(crate) fn stranger(&self, inside: bool) {
        self.shared.stranger.store(inside, Ordering::SeqCst);
    }

    /// Waits until the last waiters are served, and sums up.
    pub(crate) async fn stop(mut self) -> Tally {
        self.shared.over.store(true, Ordering::SeqCst);
        let last = async {
            while let Some(task) = self.tasks.join_next().await {
                task.unwrap();
            }
        };
        tokio::time::timeout(2 * BUDGET, last).await.expect("everybody is served or gives up");
        let mut tally = self.shared.tally.lock().unwrap().clone();
        let waits = std::mem::take(&mut tally.waits);
        let bypassed = |(start, granted): &(Instant, Instant)| {
            waits.iter().filter(|(other, served)| other > start && served < granted).count()
        };
        tally.longest_bypass = waits.iter().map(bypassed).max().unwrap_or(0);
        tally
    }
}
