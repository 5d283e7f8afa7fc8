//! Shared by the tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_kubernetes as _;
use lock_testing::{Recorder, Verdict};

use crate::history::judged;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Longer than any stall of the machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A manager as another process would have it. A worker is told its ttl in seconds behind the URL, for example `#3`.
pub(crate) fn locks(url: &str) -> LockManager {
    let (url, seconds) = url.split_once('#').unwrap_or((url, ""));
    locks_for(url, seconds.parse().map_or(LONG, Duration::from_secs))
}

/// A manager whose locks have this ttl.
pub(crate) fn locks_for(url: &str, ttl: Duration) -> LockManager {
    LockManager::builder_for(url).unwrap().with_ttl(ttl).with_wait(2 * LONG).build().unwrap()
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        tokio::time::sleep(5 * MS).await;
    }
}

/// A directory of one test, with the history that its processes share.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lock-k8s-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::append_to(&self.history())
    }

    /// A manager whose acquires are recorded.
    pub(crate) fn locks(&self, url: &str, ttl: Duration) -> LockManager {
        let locks = locks_for(url, ttl);
        locks.observe(self.recorder());
        locks
    }

    /// Lets both checkers read the history. Neither may find a fault.
    pub(crate) fn verdict(&self) -> Verdict {
        judged(Path::new(&self.history()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
