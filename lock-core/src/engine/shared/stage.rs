//! The progress of a shutdown. It decides which acquires are refused.

use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

const SERVING: u8 = 0;
const STOPPING: u8 = 1;
const CLOSED: u8 = 2;

/// Moves in one direction only: serving, then stopping (accepted work is still served), then closed.
#[derive(Default)]
pub(super) struct Stage {
    reached: AtomicU8,
    changed: Notify,
}

impl Stage {
    /// Refuses new work, and wakes all callers that wait for the store.
    pub(super) fn stop(&self) {
        self.reach(STOPPING);
    }

    /// Refuses accepted work too.
    pub(super) fn close(&self) {
        self.reach(CLOSED);
    }

    fn reach(&self, stage: u8) {
        self.reached.fetch_max(stage, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Returns whether an acquire is refused. `accepted` says whether it belongs to work that was accepted before.
    pub(super) fn refuses(&self, accepted: bool) -> bool {
        self.reached.load(Ordering::Acquire) > if accepted { STOPPING } else { SERVING }
    }

    /// Waits until acquires are refused.
    pub(super) async fn until_refused(&self, accepted: bool) {
        let mut changed = pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            if self.refuses(accepted) {
                return;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }
}
