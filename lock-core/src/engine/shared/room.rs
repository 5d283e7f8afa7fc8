//! Limits the cleanups that are in flight to the store at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many releases and other cleanups may be in flight before new claims wait. If guards are dropped faster than the
/// store frees their locks, the program then pays with time and not with memory.
const LIMIT: usize = 4096;

/// The number of cleanups in flight at which waiting claims continue.
const RESUME: usize = LIMIT / 4 * 3;

/// Counts the cleanups that are in flight.
#[derive(Default)]
pub(super) struct Room {
    used: AtomicUsize,
    /// Tells waiting claims that cleanups have ended.
    freed: Notify,
}

impl Room {
    pub(super) fn take(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self) {
        if self.used.fetch_sub(1, Ordering::AcqRel) == RESUME + 1 {
            self.freed.notify_waiters();
        }
    }

    pub(super) fn is_left(&self) -> bool {
        self.used.load(Ordering::Acquire) < LIMIT
    }

    /// Waits until there is room.
    pub(super) async fn left(&self) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.is_left() {
                return;
            }
            freed.await;
        }
    }
}
