//! A walk through the locks of a store, page by page.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::contract::backend::{DoneMark, JobRecord, LockEntry, SyncReport};
use crate::types::key::LockKey;

/// The result of one step of a walk. Made by [`Inspector::scan`](crate::Inspector::scan).
///
/// ```
/// use lock_core::LockKey;
/// use lock_store::{ScanPage, ScanPosition};
///
/// let (mut page, last) = (ScanPage::new("db-1:5432"), LockKey::new("report")?);
/// page.next = Some(ScanPosition::new(last.clone()));
/// // In the next step:
/// assert_eq!(page.next.as_ref().and_then(ScanPosition::get::<LockKey>), Some(&last));
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanPage {
    /// The locks that are not free, including those of clients of other libraries.
    pub entries: Vec<LockEntry>,
    /// The records of jobs, by the key of their lock. They are listed even while no process runs the job.
    pub jobs: Vec<(LockKey, JobRecord)>,
    /// The marks of finished versions, by the key of the lock.
    pub done: Vec<(LockKey, DoneMark)>,
    /// The name of the server that was read, without credentials.
    pub node: String,
    /// About how many keys were visited.
    pub visited: u64,
    /// Where the walk continues. `None` at the end.
    pub next: Option<ScanPosition>,
    /// Of a quorum: how many jobs each member has listed so far. After an error, the walk goes on without that member.
    pub members: Option<SyncReport<u64>>,
}

impl ScanPage {
    /// Begins an empty page, which is the last one.
    #[must_use]
    pub fn new(node: impl Into<String>) -> Self {
        let (entries, jobs, done) = (Vec::new(), Vec::new(), Vec::new());
        Self { entries, jobs, done, node: node.into(), visited: 0, next: None, members: None }
    }
}

/// Where a walk continues, in the form that its store needs. See the example of [`ScanPage`].
#[derive(Clone)]
pub struct ScanPosition(Arc<dyn Any + Send + Sync>);

impl ScanPosition {
    /// Keeps a position.
    #[must_use]
    pub fn new(position: impl Any + Send + Sync) -> Self {
        Self(Arc::new(position))
    }

    /// Returns the position to the store that made it. `None` if it belongs to another store.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for ScanPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanPosition").finish_non_exhaustive()
    }
}
