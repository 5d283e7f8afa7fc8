//! The connections that carry renewals and nothing else.

use tokio::runtime::{Handle, Id};

use crate::sentinel::place::Place;
use crate::server::pool::Pool;
use lock_store::types::system::sync::Mutex;

/// The renewals of one server.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// The connections that carry renewals and nothing else: one for each keeper, open while leases are renewed over it.
    pub(crate) pool: Pool,
    /// The runtimes of the keepers.
    keepers: Mutex<Vec<Id>>,
}

impl Renewals {
    pub(crate) fn new(place: Place) -> Self {
        Self { pool: Pool::new(place), keepers: Mutex::default() }
    }

    /// Says that a keeper runs on this runtime, until the result is dropped.
    pub(crate) fn keep_here(&self) -> Kept<'_> {
        let runtime = Handle::current().id();
        self.keepers.lock().push(runtime);
        Kept { renewals: self, runtime }
    }

    pub(crate) fn are_kept_here(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| self.keepers.lock().contains(&runtime.id()))
    }
}

/// Says that a keeper runs on a runtime.
pub(crate) struct Kept<'a> {
    renewals: &'a Renewals,
    runtime: Id,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let mut keepers = self.renewals.keepers.lock();
        if let Some(at) = keepers.iter().position(|runtime| *runtime == self.runtime) {
            keepers.swap_remove(at);
        }
    }
}
