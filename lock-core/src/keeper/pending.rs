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
    count: AtomicUsize,
    /// How many wait for the count to fall to zero. Nobody is told while nobody waits.
    waiting: AtomicUsize,
    /// Held by blocking waiters while they look at the count.
    lock: Mutex<()>,
    /// Tells blocking waiters that the count has fallen to zero.
    empty: Condvar,
    /// Tells asynchronous waiters the same.
    changed: Notify,
}

impl Pending {
    /// Blocks until nothing is pending, or time is up.
    pub(super) fn wait(&self, within: Duration) {
        let _waiting = Waiting::new(&self.waiting);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |(): &mut ()| !self.is_empty();
        let _ = self.empty.wait_timeout_while(guard, within, busy).unwrap_or_else(PoisonError::into_inner);
    }

    /// Waits until nothing is pending.
    pub(super) async fn emptied(&self) {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// In one order with the counting of those who wait: either they see that the last is done, or the
    /// last sees that they wait.
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

/// Somebody who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One piece of work that is not done. Counted until it is dropped, finished or not.
pub(crate) struct PendingEntry(Arc<Engine>);

impl PendingEntry {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        engine.pending.count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(engine))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        let pending = &self.0.pending;
        if pending.count.fetch_sub(1, Ordering::SeqCst) == 1 && pending.waiting.load(Ordering::SeqCst) > 0 {
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
