//! Follows the changes of the leader.

use tokio::sync::watch;

use crate::api::manager::LockManager;
use crate::api::roles::election::Leader;
use crate::engine::watch::following::LastSeen;
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::blocking::yielding;

/// Follows the leader. See the example of [`Election::observe`](super::Election::observe), which makes it.
#[derive(Debug)]
pub struct Observation {
    manager: LockManager,
    seen: Result<watch::Receiver<LastSeen>>,
}

impl Observation {
    pub(super) fn new(manager: &LockManager, key: Result<LockKey>) -> Self {
        let engine = manager.engine_here();
        let seen = key.and_then(|key| engine.map(|engine| manager.following().follow(engine, &key)));
        Self { manager: manager.clone(), seen }
    }

    /// Waits until the leader changes, and returns the new one. The first call returns the current leader. `None` means
    /// that no process leads. It can also mean that no leader is known, because the store has not answered for longer
    /// than the lease that was seen last.
    ///
    /// A change is seen within about a second. A leader that came and went in between is not seen.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::ShutDown`](crate::LockErrorKind::ShutDown) when the manager is shut down, or takes no new work
    /// because it [drains](LockManager::drain). A manager that [serves while
    /// stopping](crate::LockManagerBuilder::serve_while_stopping) reports changes until it is shut down. Also
    /// `InvalidKey`.
    ///
    /// # Cancel safety
    ///
    /// Safe: no change is missed.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        yielding(self.next().await).await
    }

    async fn next(&mut self) -> Result<Option<Leader>> {
        let seen = self.seen.as_mut().map_err(|error| error.clone())?;
        let (engine, accepted) = (self.manager.engine(), self.manager.serves_while_stopping());
        loop {
            tokio::select! {
                biased;
                () = engine.until_refused(accepted) => return Err(engine.refusal()),
                changed = seen.changed() => changed.map_err(|_| LockError::shut_down())?,
            }
            if let Some(holder) = seen.borrow_and_update().clone() {
                return Ok(holder.map(Leader));
            }
        }
    }
}
