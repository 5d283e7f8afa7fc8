//! Work that no task drives: whoever wakes it polls it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// Sees to it that of those who wake a work, also at the same time, one polls, and once more for what it
/// may have missed.
#[derive(Debug, Default)]
pub(crate) struct InlineTask(AtomicUsize);

impl InlineTask {
    /// Counts a wake. Whoever raises the count from zero polls until nobody has woken meanwhile.
    pub(crate) fn wake(&self, mut poll: impl FnMut() -> Poll<()>) {
        if self.0.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        loop {
            let seen = self.0.load(Ordering::Acquire);
            // What is over stays counted: it is never polled again.
            if poll().is_ready() || self.0.fetch_sub(seen, Ordering::AcqRel) == seen {
                return;
            }
        }
    }
}
