//! The state that the masters of one cluster have in common.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use crate::protocol::clock::Floor;
use crate::protocol::keys::hash_slot::SLOTS;
use crate::server::repeats::Repeats;
use lock_store::contract::backend::Grant;
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::sync::Mutex;

/// How many grants are remembered, to recognise their copies.
const COPIES: usize = 64;

/// The state that the masters of one cluster have in common.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// By slot, because each has a clock of its own.
    floors: Floors,
    /// The last grants that were delivered: the cluster passes each on to all of its nodes.
    delivered: Mutex<VecDeque<(OwnerId, FencingToken)>>,
    /// Notified when something is wrong with a master.
    pub(crate) trouble: Notify,
    /// The recent releases, for a server that takes over.
    pub(crate) repeats: Arc<Repeats>,
    /// Whether the URL accepts that a failover may lose locks (`acks=0`).
    pub(crate) accepts_loss: bool,
    /// Whether it has been logged that a failover may lose locks.
    pub(crate) warned_of_replicas: AtomicBool,
}

#[derive(Debug)]
struct Floors(Box<[Floor]>);

impl Default for Floors {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Floor::default()).collect())
    }
}

impl Common {
    /// Returns the floor of the clock of a slot.
    pub(crate) fn floor(&self, slot: usize) -> &Floor {
        &self.floors.0[slot]
    }

    /// Has the keeper look at the cluster.
    pub(crate) fn look_soon(&self) {
        self.trouble.notify_one();
    }

    /// Returns whether a grant is not a copy of one that was delivered.
    pub(crate) fn is_news(&self, grant: &Grant) -> bool {
        let mut delivered = self.delivered.lock();
        let this = (grant.claim.owner, grant.token);
        if delivered.contains(&this) {
            return false;
        }
        if delivered.len() == COPIES {
            delivered.pop_front();
        }
        delivered.push_back(this);
        true
    }
}
