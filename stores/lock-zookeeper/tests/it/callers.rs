//! Callers that take a few locks in turn while servers fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_core::LockManager;
use lock_testing::{EventLog, Recorder, Stopwatch};
use tokio::task::JoinSet;

use crate::support::{LONG, SECOND, eventually, locks};

/// How long a caller waits at a time. It may meet the lock of a holder whose session must end first.
const WAIT: Duration = Duration::from_secs(5);

pub(crate) struct Callers {
    over: Arc<AtomicBool>,
    /// How often each caller had a lock.
    turns: Vec<Arc<AtomicU64>>,
    tasks: JoinSet<()>,
    events: EventLog,
}

impl Callers {
    /// Starts a caller for each URL, with a store of its own. All take the same three locks.
    pub(crate) async fn start(urls: &[String], history: &Path) -> Self {
        let (over, events, mut tasks) = (Arc::new(AtomicBool::new(false)), EventLog::default(), JoinSet::new());
        let turns: Vec<_> = urls.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        for (first, (url, turns)) in urls.iter().zip(&turns).enumerate() {
            let locks = locks(url);
            locks.observe(events.clone());
            locks.observe(Recorder::append_to(history));
            tasks.spawn(call(locks, Recorder::append_to(history), first, Arc::clone(&over), Arc::clone(turns)));
        }
        let callers = Self { over, turns, tasks, events };
        callers.each_is_served(LONG, "a first turn").await;
        callers
    }

    /// Waits until each caller has had a lock that it asked for after now.
    pub(crate) async fn each_is_served(&self, within: Duration, what: &str) {
        let watch = Stopwatch::start();
        for turns in &self.turns {
            // It had asked for the next one already.
            let enough = turns.load(Ordering::SeqCst) + 2;
            eventually(what, || turns.load(Ordering::SeqCst) >= enough).await;
        }
        println!("figure: {what}: {:?}", watch.elapsed());
        watch.assert_within(within, what);
    }

    /// Ends all, and returns how many turns there were.
    pub(crate) async fn finish(mut self) -> u64 {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        eventually("every acquire ends", || self.events.open() == 0).await;
        self.events.assert_complete();
        self.turns.iter().map(|turns| turns.load(Ordering::SeqCst)).sum()
    }
}

async fn call(locks: LockManager, recorder: Recorder, first: usize, over: Arc<AtomicBool>, turns: Arc<AtomicU64>) {
    for turn in first.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        match locks.lock(format!("shared {}", turn % 3).as_str()).with_wait(WAIT).await {
            Ok(guard) => {
                tokio::task::yield_now().await;
                recorder.release(guard.key(), guard.token());
                // An unknown answer is possible while servers fail.
                let _ = guard.release().await;
                turns.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    locks.shutdown(5 * SECOND).await;
}
