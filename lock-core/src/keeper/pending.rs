//! What must not be forgotten when the program ends.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::keeper::Engine;

/// Counts cleanup that is still to be done, and acquires that may need some.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) count: AtomicUsize,
    /// Held by blocking waiters while they look at the count.
    lock: Mutex<()>,
    /// Tells blocking waiters that the count has fallen to zero.
    empty: Condvar,
    /// Tells asynchronous waiters the same.
    pub(super) changed: Notify,
}

impl Pending {
    pub(super) fn wait(&self, within: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |(): &mut ()| self.count.load(Ordering::Acquire) > 0;
        let _ = self.empty.wait_timeout_while(guard, within, busy).unwrap_or_else(PoisonError::into_inner);
    }
}

/// One piece of work that is not done. Counted until it is dropped, finished or not.
pub(crate) struct PendingEntry(pub(super) Arc<Engine>);

impl Drop for PendingEntry {
    fn drop(&mut self) {
        let pending = &self.0.pending;
        if pending.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Taken, so that no waiter falls asleep between its look at the count and this.
            drop(pending.lock.lock().unwrap_or_else(PoisonError::into_inner));
            pending.empty.notify_all();
            pending.changed.notify_waiters();
        }
    }
}

impl fmt::Debug for PendingEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingEntry")
    }
}
