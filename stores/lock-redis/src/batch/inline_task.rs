//! Work that no task drives: the thread that wakes it polls it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// Lets only one thread poll, of all that wake the work at the same time, and makes it poll once more for
/// what it may have missed.
#[derive(Debug, Default)]
pub(crate) struct InlineTask(AtomicUsize);

impl InlineTask {
    /// Counts a wake. The thread that raises the count from zero polls until nobody has woken it meanwhile.
    pub(crate) fn wake(&self, mut poll: impl FnMut() -> Poll<()>) {
        if self.0.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        loop {
            let seen = self.0.load(Ordering::Acquire);
            // Finished work stays counted: it is never polled again.
            if poll().is_ready() || self.0.fetch_sub(seen, Ordering::AcqRel) == seen {
                return;
            }
        }
    }
}
