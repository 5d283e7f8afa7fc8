//! A store's background work, started again whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{DynBackend, Inbox};
use crate::types::error::LockErrorKind;
use crate::types::system::clock::{Clock, jitter};

/// How long to pause before the store's background work is started again: at first, and at most.
const RESTART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Runs the store's own background work, again and again. If it always ends at once, for example because
/// the store refuses our password, the pauses grow.
pub(crate) async fn drive_again(backend: Arc<dyn DynBackend>, inbox: Inbox, clock: Clock) {
    let mut pause = RESTART.0;
    loop {
        let started = clock.now();
        let error = Arc::clone(&backend).drive(inbox.clone()).await;
        if clock.now().since(started) > RESTART.1 {
            pause = RESTART.0;
        }
        if pause == RESTART.0 && error.kind() == LockErrorKind::Misconfigured {
            tracing::warn!(%error, "the lock store refuses a background connection; waiters poll until it lets us in");
        } else {
            tracing::debug!(%error, ?pause, "the lock store's background connection ended; it is started again");
        }
        clock.sleep_until(clock.now().after(jitter(pause / 2, pause))).await;
        pause = (pause * 2).min(RESTART.1);
    }
}
