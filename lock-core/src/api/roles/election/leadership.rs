//! The time in which this process leads.

use std::future::Future;

use crate::api::guard::LockGuard;
use crate::engine::claim::free::ReleaseOutcome;
use lock_store::types::error::{LossReason, Result};
use lock_store::types::fencing::FencingToken;

/// The proof that this process leads. Dropping it resigns in the background.
///
/// See the example of [`Election::campaign`](super::Election::campaign), which makes it.
#[must_use = "this process resigns when it is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    pub(super) fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// Returns the number of the term. It is greater than the numbers of all earlier terms. Send it along with every
    /// write, and let the resource refuse older ones.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.token()
    }

    /// Checks by the clock that this process still leads. Sends no command.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// Waits until this process does not lead any more, and returns the reason. Stays pending while it leads.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// Resigns, so that the next candidate leads at once.
    ///
    /// If the store does not answer, the resignation is retried until the lease ends.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store could not be told before the
    /// lease expired. Then no process leads, and the resignation is retried once more in the background.
    ///
    /// # Cancel safety
    ///
    /// Safe: a resignation that has begun is finished in the background.
    pub fn resign(self) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        self.guard.release()
    }
}
