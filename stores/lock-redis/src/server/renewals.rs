//! The connections that carry renewals alone, and which claims may be renewed without a look at the owner.
//!
//! A native renewal of a lease that was lost lengthens the lease of whoever has the key now. That must
//! happen at most once for each claim, and never after a release that leaves the key taken for a while.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, Id};

use crate::place::discovery::Place;
use crate::server::pool::Pool;
use crate::wire::link::Link;
use crate::wire::unsettled::Unsettled;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// How many ended claims are remembered. A renewal follows its release by microseconds, if ever: when the
/// two begin at the same moment.
const ENDED: usize = 4096;

/// The renewals of one server.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// The connections that carry renewals and nothing else: one for each keeper, open while leases are renewed over it.
    pub(crate) pool: Pool,
    /// The runtimes of the keepers.
    keepers: Mutex<Vec<Id>>,
    /// The native renewals that are not answered.
    pub(crate) in_flight: Unsettled,
    state: Mutex<State>,
    /// How many claims are in doubt.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The claims whose newest native renewal has had no definite answer.
    in_doubt: HashSet<OwnerId>,
    /// The claims that ended not long ago and left their keys taken.
    ended: HashSet<OwnerId>,
}

impl Renewals {
    pub(crate) fn new(place: Place) -> Self {
        let (keepers, in_flight) = (Mutex::default(), Unsettled::default());
        Self { pool: Pool::new(place), keepers, in_flight, state: Mutex::default(), count: AtomicUsize::new(0) }
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Begins native renewals over a connection. Returns for each claim whether it has one: the others must
    /// be renewed by the script.
    pub(crate) fn begin(&self, owners: impl Iterator<Item = OwnerId>, link: &Link) -> Vec<bool> {
        let mut state = self.lock();
        let mut begun = Vec::new();
        let mut may = |owner| {
            let may =
                !state.ended.contains(&owner) && self.in_flight.get(owner).is_none() && state.in_doubt.insert(owner);
            if may {
                begun.push(owner);
            }
            may
        };
        let may: Vec<bool> = owners.map(&mut may).collect();
        self.count.store(state.in_doubt.len(), Ordering::Release);
        // Under the lock, so that a claim that ends from now on finds its renewal.
        self.in_flight.note_all(begun.into_iter(), link);
        may
    }

    /// Notes that a claim ends and leaves its key taken: it is no longer renewed natively.
    pub(crate) fn end(&self, owner: OwnerId) {
        let mut state = self.lock();
        if state.ended.len() >= ENDED {
            state.ended.clear();
        }
        state.ended.insert(owner);
    }

    /// Notes that there is a definite answer for a claim, or that it has ended.
    pub(crate) fn forget(&self, owner: OwnerId) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut state = self.lock();
            state.in_doubt.remove(&owner);
            self.count.store(state.in_doubt.len(), Ordering::Release);
        }
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
