//! How much cleanup may be on its way to the store at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many releases and other cleanups may be on their way before new claims wait. If guards are
/// dropped faster than the store frees their locks, this costs time, not memory.
const LIMIT: usize = 4096;

/// The number on their way at which waiting claims continue.
const RESUME: usize = LIMIT / 4 * 3;

/// Counts the cleanups that are on their way.
#[derive(Default)]
pub(super) struct Room {
    used: AtomicUsize,
    /// Tells waiting claims that there is room again.
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
