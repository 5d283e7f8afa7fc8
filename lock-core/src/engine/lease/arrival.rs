//! Whether a lease that was passed on has arrived: until then its release is not answered.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use crate::engine::lease::Lease;

impl Lease {
    /// Returns how often a holder has taken it.
    pub(crate) fn takes(&self) -> u64 {
        self.takes.load(Ordering::Acquire)
    }

    /// Waits until what its holder passed on has arrived: the lock at the next holder, or its end at the next
    /// caller or at the store. `takes` is how often it had been taken before it was passed on.
    pub(crate) fn poll_arrival(&self, takes: u64, cx: &Context<'_>) -> Poll<()> {
        if self.takes() > takes {
            return Poll::Ready(());
        }
        let mut state = self.state();
        // Once more, under the lock: a holder that takes the lease from now on finds our waker.
        if self.takes() > takes || state.end_arrived {
            return Poll::Ready(());
        }
        state.releaser = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Notes that the next caller, or the store, knows that the lease has ended.
    pub(crate) fn arrive(&self) {
        let releaser = {
            let mut state = self.state();
            state.end_arrived = true;
            state.releaser.take()
        };
        releaser.into_iter().for_each(Waker::wake);
    }
}
