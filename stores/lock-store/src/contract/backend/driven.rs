//! Runs a store's background work, and restarts it whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{DynBackend, Inbox};
use crate::types::error::LockErrorKind;
use crate::types::system::backoff::Backoff;
use crate::types::system::clock::Clock;

/// The pause before the store's background work is restarted: at first, and at most.
const RESTART: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));

/// Runs the store's own background work, again and again. The pauses grow if it always ends at once, for example
/// because the store refuses the password.
pub async fn drive_again(backend: Arc<dyn DynBackend>, inbox: Inbox, clock: Clock) {
    let mut backoff = RESTART;
    loop {
        let started = clock.now();
        let error = Arc::clone(&backend).drive(inbox.clone()).await;
        backoff.went_well_for(clock.now().since(started));
        let is_first = backoff.is_shortest();
        let pause = backoff.long_pause();
        let is_refused = is_first && error.kind() == LockErrorKind::Misconfigured;
        if !is_refused {
            tracing::debug!(%error, ?pause, "the lock store's background connection ended; it is started again");
        }
        clock.sleep_until(clock.now().after(pause)).await;
        // Logged only after the pause. If `connect` was refused, its manager is gone by now and its caller has the
        // error.
        if is_refused {
            tracing::warn!(%error, "the lock store refuses a background connection; waiters poll until it accepts one");
        }
    }
}
