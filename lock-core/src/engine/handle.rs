//! The handle that keeps an engine alive while handles, guards or acquires of its manager exist.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::engine::claim::Handoff;
use crate::engine::gate::{Gate, Turn, Waiter};
use crate::engine::shared::{Engine, Interrupted};
use crate::engine::timer::SLOW;
use lock_store::types::system::clock::Timestamp;

/// How long the last handle of a manager waits for releases that are still in flight.
const DRAIN_ON_DROP: Duration = Duration::from_millis(250);

/// The state that all handles, guards and acquires of a manager share. When the last of them is dropped, the drop waits
/// for the remaining releases, because the program may end right after it.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    pub(crate) engine: Arc<Engine>,
    /// The local queues for exclusive locks.
    pub(crate) gate: Arc<Gate<Handoff>>,
    /// The local queues for shared locks. The store decides the order between the two kinds.
    pub(crate) shared: Arc<Gate<Handoff>>,
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.engine.drain_blocking(DRAIN_ON_DROP);
    }
}

impl EngineHandle {
    /// Waits for a turn, until `at` at the latest or until a shutdown refuses this caller. `now` is a time that has
    /// just passed. Most waits are short, so the alarm is set later.
    pub(crate) async fn called(
        &self,
        (now, at): (Timestamp, Timestamp),
        accepted: bool,
        waiter: &mut Waiter<Handoff>,
    ) -> Result<Turn<Handoff>, Interrupted> {
        let mut time_out = pin!(self.engine.timer.sleep_long(now, at));
        poll_fn(|cx| {
            if let Poll::Ready(turn) = Pin::new(&mut *waiter).poll(cx) {
                return Poll::Ready(Ok(turn));
            }
            // Checked after the waiter is registered. A shutdown that begins later wakes the waiter, so it cannot be
            // missed.
            if self.engine.refuses(accepted) {
                return Poll::Ready(Err(Interrupted::Closed));
            }
            if waiter.take_relies() && at.since(now) > SLOW {
                return Poll::Pending;
            }
            time_out.as_mut().poll(cx).map(|()| Err(Interrupted::TimedOut))
        })
        .await
    }

    /// Refuses new work and wakes all waiters.
    pub(crate) fn stop(&self) {
        self.engine.stop();
        self.wake_all();
    }

    /// Refuses all work and wakes all waiters.
    pub(crate) fn close(&self) {
        self.engine.close();
        self.wake_all();
    }

    fn wake_all(&self) {
        self.gate.wake_all();
        self.shared.wake_all();
    }
}
