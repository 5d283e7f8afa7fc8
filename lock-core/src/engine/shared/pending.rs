//! Counts the work that must not be lost when the program ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use lock_store::types::system::sync::Mutex;

/// Counts pending cleanups, and acquires that may need one.
#[derive(Default)]
pub(super) struct Pending {
    count: AtomicUsize,
    /// How many callers wait for the count to fall to zero. While this is zero, no notification is sent.
    waiting: AtomicUsize,
    /// Held by blocking waiters while they read the count.
    lock: Mutex<()>,
    /// Tells blocking waiters that the count has fallen to zero.
    empty: Condvar,
    /// Tells asynchronous waiters the same.
    changed: Notify,
}

impl Pending {
    /// Counts one piece of work as pending.
    pub(super) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts it as done.
    pub(super) fn finish(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.waiting.load(Ordering::SeqCst) > 0 {
            // The lock is taken so that no waiter falls asleep between reading the count and this notification.
            drop(self.lock.lock());
            self.empty.notify_all();
            self.changed.notify_waiters();
        }
    }

    /// Blocks until nothing is pending, or the time is up.
    pub(super) fn wait(&self, within: Duration) {
        let _waiting = Waiting::new(&self.waiting);
        let guard = self.lock.lock();
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

    /// Ordered with the count of waiters. Either a waiter sees that the last work is done, or the last work sees that a
    /// waiter exists. Without this order, both could miss each other and the waiter would sleep on.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

/// One waiter, counted until it is dropped.
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
