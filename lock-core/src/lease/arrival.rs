//! Whether a lease that was passed on has arrived: until then its release is not answered.

use std::task::{Context, Poll, Waker};

use crate::fencing::FencingToken;
use crate::lease::Lease;

impl Lease {
    /// Waits until what the holder with this token passed on has arrived: the lock at the next holder, or its
    /// end at the next caller or at the store.
    pub(crate) fn poll_arrival(&self, passed_by: FencingToken, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.token > passed_by || state.end_arrived {
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
