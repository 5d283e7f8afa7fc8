//! Wait and hold times, taken from the library's own events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{GrantPath, LockEvent, LockEventKind, LockObserver};
use serde::{Deserialize, Serialize};

/// Records how long each grant took and lasted. Clones share their records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<Times>>);

/// The times that a [`Stopwatch`] recorded.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Times {
    /// From the request to the grant, one for each grant.
    waits: Vec<Duration>,
    /// From grant to release, one for each release.
    holds: Vec<Duration>,
    /// Grants that needed more than one attempt.
    contended: usize,
    /// Locks lost while they were held.
    pub(crate) lost: usize,
}

impl LockObserver for Stopwatch {
    // Called on the hot path: record it and return.
    fn on_event(&self, event: &LockEvent<'_>) {
        match event.kind {
            LockEventKind::Acquired { waited, path, .. } => {
                let mut times = self.times();
                times.waits.push(waited);
                times.contended += usize::from(path != GrantPath::Uncontended);
            }
            LockEventKind::Released { held, .. } => self.times().holds.push(held),
            LockEventKind::Lost { held, .. } | LockEventKind::Abandoned { held, .. } => {
                let mut times = self.times();
                times.holds.push(held);
                times.lost += 1;
            }
            _ => {}
        }
    }
}

impl Stopwatch {
    /// Returns the times recorded so far.
    pub(crate) fn read(&self) -> Times {
        self.times().clone()
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    /// Adds the times of another process.
    pub(crate) fn add(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.holds.extend(other.holds);
        self.contended += other.contended;
        self.lost += other.lost;
    }

    pub(crate) fn grants(&self) -> usize {
        self.waits.len()
    }

    /// Returns the percentage of grants that had to wait.
    #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
    pub(crate) fn contention(&self) -> f64 {
        100.0 * self.contended as f64 / self.grants().max(1) as f64
    }

    pub(crate) fn wait(&mut self, percent: usize) -> Duration {
        quantile(&mut self.waits, percent)
    }

    pub(crate) fn hold(&mut self, percent: usize) -> Duration {
        quantile(&mut self.holds, percent)
    }
}

/// Returns the smallest value that at least `percent` of all values do not exceed.
fn quantile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
