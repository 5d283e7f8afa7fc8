//! The time in which this process leads.

use std::future::Future;

use crate::api::guard::LockGuard;
use crate::engine::claim::free::ReleaseOutcome;
use crate::types::error::{LossReason, Result};
use crate::types::fencing::FencingToken;

/// The proof that this process leads. Made by [`Election::campaign`](super::Election::campaign). Dropped, it resigns in
/// the background. See there for an example of [`Leadership`].
#[must_use = "this process resigns when it is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    pub(super) fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// Returns the number of the term: greater than those of all terms before. Send it along with every write, and
    /// let the resource refuse older ones.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.token()
    }

    /// Checks that this process still leads, by the clock. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](crate::LockErrorKind::Lost) with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// Waits until this process leads no longer, and says why. Pending for as long as it leads.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// Resigns, so that the next candidate leads at once.
    ///
    /// A store that does not answer is told again until the lease ends.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store could not be told before the
    /// lease ran out. Nobody leads then, and it is told once more in the background.
    ///
    /// # Cancel safety
    ///
    /// Safe: a resignation once begun is finished in the background.
    pub fn resign(self) -> impl Future<Output = Result<ReleaseOutcome>> + Send + 'static {
        self.guard.release()
    }
}
