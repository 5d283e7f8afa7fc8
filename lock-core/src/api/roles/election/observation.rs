//! Who leads, as it changes.

use tokio::sync::watch;

use crate::api::manager::LockManager;
use crate::api::roles::election::Leader;
use crate::engine::watch::following::LastSeen;
use crate::types::error::{LockError, Result};
use crate::types::key::LockKey;
use crate::types::system::blocking::yielding;

/// Follows who leads. Made by [`Election::observe`](super::Election::observe), which is the example of [`Observation`].
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

    /// Waits until another leads than before, and returns who; the first call returns who leads now. `None` means
    /// that nobody leads, or that nobody is known to, because the store has not answered for longer than the lease
    /// that was seen last.
    ///
    /// A change is seen within about a second. A leader that came and went in between is not.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::ShutDown`](crate::LockErrorKind::ShutDown) when the manager is shut down, or takes no new work because
    /// it [drains](LockManager::drain): one that [serves while stopping](crate::LockManagerBuilder::serve_while_stopping) tells
    /// changes until it is shut down. And `InvalidKey`.
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
