//! Waits until a lease that was passed on has arrived. Its release is not answered before that.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use crate::engine::lease::Lease;

impl Lease {
    /// Returns how often a holder has taken the lease.
    pub(crate) fn takes(&self) -> u64 {
        self.takes.load(Ordering::Acquire)
    }

    /// Waits until what the holder passed on has arrived. Either the next holder has taken the lock, or the next caller
    /// or the store knows that the lease has ended. `takes` is the count of [`takes`](Self::takes) before the lease was
    /// passed on.
    #[inline]
    pub(crate) fn poll_arrival(&self, takes: u64, cx: &Context<'_>) -> Poll<()> {
        if self.takes() > takes {
            return Poll::Ready(());
        }
        let mut state = self.state();
        // Check again with the state locked. A holder that takes the lease after this point finds our waker and wakes
        // it.
        if self.takes() > takes || state.end_arrived {
            return Poll::Ready(());
        }
        state.releaser = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Notes that the next caller or the store knows that the lease has ended.
    pub(crate) fn arrive(&self) {
        let releaser = {
            let mut state = self.state();
            state.end_arrived = true;
            state.releaser.take()
        };
        releaser.into_iter().for_each(Waker::wake);
    }
}
