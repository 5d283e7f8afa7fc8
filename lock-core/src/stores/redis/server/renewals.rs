//! Which claims may be renewed without a look at the owner.
//!
//! A native renewal of a lost lease lengthens the lease of the key's next holder. That must
//! happen at most once for each claim, and never after a release that leaves the key taken for a while.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stores::redis::wire::link::Link;
use crate::stores::redis::wire::unsettled::Unsettled;
use crate::types::owner::OwnerId;
use crate::types::system::sync::{Mutex, MutexGuard};

/// How many ended claims are remembered. A renewal follows its release by microseconds, if ever: when the
/// two begin at the same moment.
const ENDED: usize = 4096;

/// The native renewals of one store.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// The renewals that are not answered yet.
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
