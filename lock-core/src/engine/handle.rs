//! What keeps an engine alive: its handles, guards and acquires.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::engine::claim::Handoff;
use crate::engine::gate::{Gate, Turn, Waiter};
use crate::engine::shared::{Engine, Interrupted};
use crate::types::system::clock::Timestamp;

/// How long the last handle of a manager waits for releases that are still on their way.
const DRAIN_ON_DROP: Duration = Duration::from_millis(250);

/// What every handle, guard and acquire of a manager shares. The last of them waits when it is dropped for
/// the cleanup that remains, since the program may be about to end.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    pub(crate) engine: Arc<Engine>,
    /// The local queues for exclusive locks.
    pub(crate) gate: Arc<Gate<Handoff>>,
    /// The local queues for locks that are shared. In which order the two come, the store decides.
    pub(crate) shared: Arc<Gate<Handoff>>,
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.engine.drain_blocking(DRAIN_ON_DROP);
    }
}

impl EngineHandle {
    /// Waits for a turn, at most until a moment or until a shutdown refuses who waits.
    pub(crate) async fn called(
        &self,
        at: Timestamp,
        accepted: bool,
        waiter: &mut Waiter<Handoff>,
    ) -> Result<Turn<Handoff>, Interrupted> {
        let mut time_out = pin!(self.engine.timer.sleep_until(at));
        poll_fn(|cx| {
            if let Poll::Ready(turn) = Pin::new(&mut *waiter).poll(cx) {
                return Poll::Ready(Ok(turn));
            }
            // After the waiter is registered, so that a shutdown from now on wakes it.
            if self.engine.refuses(accepted) {
                return Poll::Ready(Err(Interrupted::Closed));
            }
            time_out.as_mut().poll(cx).map(|()| Err(Interrupted::TimedOut))
        })
        .await
    }

    /// Refuses new work and wakes everybody who waits.
    pub(crate) fn stop(&self) {
        self.engine.stop();
        self.wake_all();
    }

    /// Refuses all work and wakes everybody who waits.
    pub(crate) fn close(&self) {
        self.engine.close();
        self.wake_all();
    }

    fn wake_all(&self) {
        self.gate.wake_all();
        self.shared.wake_all();
    }
}
