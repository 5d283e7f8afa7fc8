//! Waits that end with the manager.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::Poll;

use crate::claim::Handoff;
use crate::clock::Timestamp;
use crate::gate::{Turn, Waiter};
use crate::keeper::Engine;

/// Why a wait ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    TimedOut,
    Closed,
}

impl Engine {
    /// Waits for a turn, at most until a moment or until the manager is shut down.
    pub(crate) async fn called(
        &self,
        at: Timestamp,
        waiter: &mut Waiter<Handoff>,
    ) -> Result<Turn<Handoff>, Interrupted> {
        let mut time_out = pin!(self.schedule.sleep_until(at));
        poll_fn(|cx| {
            if let Poll::Ready(turn) = Pin::new(&mut *waiter).poll(cx) {
                return Poll::Ready(Ok(turn));
            }
            // After the seat, which knows from now on whom a shutdown has to wake.
            if self.is_closed() {
                return Poll::Ready(Err(Interrupted::Closed));
            }
            time_out.as_mut().poll(cx).map(|()| Err(Interrupted::TimedOut))
        })
        .await
    }

    /// Awaits a future, at most until a moment or until the manager is shut down.
    pub(crate) async fn until<T>(&self, at: Timestamp, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        let mut closing = pin!(self.closing.notified());
        closing.as_mut().enable();
        if self.closed.load(Ordering::Acquire) {
            return Err(Interrupted::Closed);
        }
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.schedule.sleep_until(at) => Err(Interrupted::TimedOut),
            () = closing => Err(Interrupted::Closed),
        }
    }

    /// Refuses new work and wakes everybody who waits.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.gate.wake_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
