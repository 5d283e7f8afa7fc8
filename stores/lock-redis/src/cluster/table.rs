//! Which master serves which slot, read without a lock; and which masters have replaced others.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::connection::url::Address;
use crate::protocol::keys::hash_slot::SLOTS;
use crate::server::node::Node;
use lock_store::types::system::sync::Mutex;

/// The lane of a slot that no master serves.
const NONE: u16 = u16::MAX;

/// How many lanes share an allocation.
const CHUNK: usize = 64;

/// Some lanes that follow each other.
type Lanes = Box<[OnceLock<Arc<Node>>]>;

/// A slot's master, and the masters.
///
/// Each master has a lane, whose number it keeps for ever, also while it is a replica or away. So a number
/// never means another server.
#[derive(Debug)]
pub(crate) struct Table {
    by_slot: Box<[AtomicU16]>,
    /// Filled from the front, and never emptied.
    lanes: Box<[OnceLock<Lanes>]>,
    numbers: Mutex<BTreeMap<Address, u16>>,
    /// Counts the changes of `by_slot`.
    changes: watch::Sender<u64>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            by_slot: (0..SLOTS).map(|_| AtomicU16::new(NONE)).collect(),
            lanes: (0..usize::from(NONE).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Table {
    /// Returns the lane of the master that serves a slot.
    pub(crate) fn lane_of(&self, slot: u16) -> Option<u16> {
        let lane = self.by_slot[usize::from(slot)].load(Ordering::Acquire);
        (lane != NONE).then_some(lane)
    }

    /// Returns the node of a lane.
    pub(crate) fn node(&self, lane: u16) -> Option<&Arc<Node>> {
        let (chunk, place) = (usize::from(lane) / CHUNK, usize::from(lane) % CHUNK);
        self.lanes.get(chunk)?.get()?[place].get()
    }

    /// Returns the lane of an address. `make` makes the node of an address that was not known.
    pub(crate) fn lane_at<E>(
        &self,
        address: &Address,
        make: impl FnOnce() -> Result<Arc<Node>, E>,
    ) -> Result<Option<u16>, E> {
        let mut numbers = self.numbers.lock();
        if let Some(lane) = numbers.get(address) {
            return Ok(Some(*lane));
        }
        let Some(lane) = u16::try_from(numbers.len()).ok().filter(|lane| *lane != NONE) else { return Ok(None) };
        let node = make()?;
        let chunk = self.lanes[usize::from(lane) / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        // Numbers are given under the lock, each once.
        let _ = chunk[usize::from(lane) % CHUNK].set(node);
        numbers.insert(address.clone(), lane);
        Ok(Some(lane))
    }

    /// Changes the masters of slots, and returns of how many.
    pub(crate) fn set(&self, slots: impl Iterator<Item = (u16, Option<u16>)>) -> usize {
        let mut changed = 0;
        for (slot, lane) in slots {
            let lane = lane.unwrap_or(NONE);
            changed += usize::from(self.by_slot[usize::from(slot)].swap(lane, Ordering::AcqRel) != lane);
        }
        if changed > 0 {
            self.changes.send_modify(|count| *count += 1);
        }
        changed
    }

    /// Returns the lanes that serve a slot.
    pub(crate) fn masters(&self) -> BTreeSet<u16> {
        let (mut masters, mut last) = (BTreeSet::new(), NONE);
        for lane in self.by_slot.iter().map(|lane| lane.load(Ordering::Acquire)) {
            // Most slots have the same master as the slot before.
            if lane != last && lane != NONE {
                masters.insert(lane);
            }
            last = lane;
        }
        masters
    }

    /// Returns whether nothing is known yet.
    pub(crate) fn is_empty(&self) -> bool {
        *self.changes.borrow() == 0
    }

    /// Returns a receiver of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The masters that took over from others, which may not have told them everything.
#[derive(Debug, Default)]
pub(crate) struct Failovers(Mutex<FailoverState>);

#[derive(Debug, Default)]
struct FailoverState {
    /// The masters that the last look found, by their lanes.
    masters: BTreeSet<u16>,
    /// Which failover made a lane a master, counted over the whole cluster.
    by_lane: BTreeMap<u16, u64>,
    count: u64,
    /// The failovers that were not published yet.
    untold: Vec<u16>,
}

impl Failovers {
    /// Notes the masters that a refresh found. If another server stopped being a master, a new master has taken over;
    /// otherwise it was added. Returns the masters that have taken over.
    pub(crate) fn found(&self, masters: BTreeSet<u16>) -> Vec<u16> {
        let mut state = self.0.lock();
        let before = mem::replace(&mut state.masters, masters);
        if before.is_subset(&state.masters) {
            return Vec::new();
        }
        let taken_over: Vec<u16> = state.masters.difference(&before).copied().collect();
        for lane in &taken_over {
            state.count += 1;
            let number = state.count;
            state.by_lane.insert(*lane, number);
            state.untold.push(*lane);
        }
        taken_over
    }

    /// Returns which failover made a lane a master, 0 if none did.
    pub(crate) fn of(&self, lane: u16) -> u64 {
        self.0.lock().by_lane.get(&lane).copied().unwrap_or(0)
    }

    /// Takes those of which observers have not been told.
    pub(crate) fn take(&self) -> Vec<u16> {
        mem::take(&mut self.0.lock().untold)
    }
}

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
