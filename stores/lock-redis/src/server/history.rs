//! Whether the server that we talk to still has the data that we wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_store::types::system::sync::Mutex;

/// The history of a server's data, as the connections to it found it.
///
/// Redis gives every history a name, `master_replid`. Another name means that another server took over, or that the
/// server was started again: what was written last may be missing.
#[derive(Debug, Default)]
pub(crate) struct History {
    name: Mutex<Option<Arc<str>>>,
    changes: AtomicU64,
}

impl History {
    /// Takes note of what a new connection found. Called before the connection is used.
    pub(crate) fn observe(&self, found: Option<&Arc<str>>) {
        let Some(found) = found else { return };
        let mut name = self.name.lock();
        if name.as_ref() != Some(found) && name.replace(Arc::clone(found)).is_some() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns its name, if any connection has found one.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.name.lock().clone()
    }

    /// Returns how often the server was found to have another history.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[path = "tests/history.rs"]
mod tests;
