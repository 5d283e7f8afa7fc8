//! Timeouts of commands and of waits in the local queue. Nearly all of them end long before their time is up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::timer::{Alarm, Timer};
use lock_store::types::system::clock::Timestamp;

/// After this time at the latest, a command or a wait counts as slow and gets an alarm of its own. It may be earlier:
/// all of them share one alarm, which may be set already.
pub(crate) const SLOW: Duration = Duration::from_millis(100);

/// The alarm that all commands and waits share.
#[derive(Debug, Default)]
pub(super) struct Slow {
    is_set: AtomicBool,
    rung: Notify,
}

impl<T: Send + Sync + 'static> Timer<T> {
    /// Sleeps until `at`. Sets an alarm for it only after it has slept for a while. `now` is a time that has just
    /// passed.
    pub(crate) async fn sleep_long(self: &Arc<Self>, now: Timestamp, at: Timestamp) {
        if at.since(now) > SLOW {
            let mut rung = pin!(self.slow.rung.notified());
            poll_fn(|cx| {
                let polled = rung.as_mut().poll(cx);
                // Set after the future is registered. An alarm that rings from now on therefore wakes it.
                self.set_slow(now);
                polled
            })
            .await;
        }
        self.sleep_until(at).await;
    }

    fn set_slow(self: &Arc<Self>, now: Timestamp) {
        if self.slow.is_set.load(Ordering::Acquire) || self.slow.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        let timer = Arc::downgrade(self);
        let ring = move || {
            if let Some(timer) = timer.upgrade() {
                timer.slow.is_set.store(false, Ordering::Release);
                timer.slow.rung.notify_waiters();
            }
        };
        self.set(now.after(SLOW), Alarm::Call(Box::new(ring)));
    }
}
