//! A walk through the locks of a store, page by page.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::contract::backend::{DoneMark, JobRecord, LockEntry};
use crate::types::key::LockKey;

/// What one step of a walk found. Made by [`Inspector::scan`](crate::Inspector::scan).
///
/// ```
/// use lock_core::{LockKey, ScanPage, ScanPosition};
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
    /// The locks that are not free, those of clients of other libraries among them.
    pub entries: Vec<LockEntry>,
    /// What is remembered of jobs, by the key of their lock, also while nobody runs them.
    pub jobs: Vec<(LockKey, JobRecord)>,
    /// What is marked as done for a version, by the key of the lock.
    pub done: Vec<(LockKey, DoneMark)>,
    /// The name of the server that was read, without credentials.
    pub node: String,
    /// About how many keys were looked at.
    pub visited: u64,
    /// Where to go on. `None` at the end.
    pub next: Option<ScanPosition>,
}

impl ScanPage {
    /// Begins an empty page, the last one.
    #[must_use]
    pub fn new(node: impl Into<String>) -> Self {
        Self { entries: Vec::new(), jobs: Vec::new(), done: Vec::new(), node: node.into(), visited: 0, next: None }
    }
}

/// Where a walk goes on: whatever the store that made it needs to know. See the example of [`ScanPage`].
#[derive(Clone)]
pub struct ScanPosition(Arc<dyn Any + Send + Sync>);

impl ScanPosition {
    /// Keeps a position.
    #[must_use]
    pub fn new(position: impl Any + Send + Sync) -> Self {
        Self(Arc::new(position))
    }

    /// Returns it to the store that made it. `None` if it is of another store.
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
