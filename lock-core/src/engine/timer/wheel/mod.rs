//! Alarms sorted by their time. Setting and cancelling are cheap, because nearly all alarms are cancelled or moved
//! before they ring.
//!
//! A `BTreeMap` would need a hundred lines less, but costs more. Each row is the processor time of one thread (medians
//! of nine runs); a whole lock takes 4.5 µs.
//!
//! | alarms beside | operation | this wheel | `BTreeMap` |
//! |---|---|---|---|
//! | 100,000 leases | set and cancel | 65 ns | 290 ns |
//! | 100,000 leases | ring and set again | 27 ns | 197 ns |
//! | 100 leases | set and cancel | 89 ns | 208 ns |

use std::collections::BTreeSet;
use std::time::Duration;

use lock_store::types::system::clock::Timestamp;

/// The time that one slot of the wheel covers.
pub(super) const TICK: Duration = Duration::from_millis(20);
const TICK_NANOS: u64 = 20_000_000;

/// The number of slots. An alarm later than the last slot goes around more than once.
const SLOTS: u64 = 2048;

/// The most slots that a renewal can choose from.
const CHOICE: u64 = 64;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// Replaces the previous entry's index, in entries that are in `near`.
const NEAR: u32 = u32::MAX - 1;

/// A wheel of slots. Each slot is a list of the alarms of one tick. When a tick begins, its alarms move to a sorted
/// set, from which they ring to the nanosecond.
pub(super) struct Wheel<T> {
    /// The most renewals in one command.
    batch: usize,
    /// All alarms. Free places are used again.
    entries: Vec<Entry<T>>,
    /// The head of the list of free places.
    free: u32,
    slots: Vec<TickSlot>,
    /// The alarms of ticks that have begun.
    near: BTreeSet<(Timestamp, u32)>,
    /// The first tick that has not begun.
    next_tick: u64,
    /// Slots of earlier ticks have no entries.
    earliest: u64,
    /// How many entries are in slots.
    far: usize,
    /// How many of those entries are renewals.
    renewals: usize,
}

#[derive(Clone, Debug)]
struct TickSlot {
    first: u32,
    /// How many of its entries are renewals.
    renewals: u32,
}

struct Entry<T> {
    at: Timestamp,
    /// `None` in a free place.
    item: Option<T>,
    /// Distinguishes this entry from earlier entries in the same place.
    generation: u32,
    previous: u32,
    next: u32,
    is_renewal: bool,
}

/// The name of one alarm, by which it can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlarmId {
    index: u32,
    generation: u32,
}

fn tick_of(at: Timestamp) -> u64 {
    at.as_nanos() / TICK_NANOS
}

fn start_of(tick: u64) -> Timestamp {
    Timestamp::from_nanos(tick.saturating_mul(TICK_NANOS))
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % SLOTS).unwrap_or(0)
}

fn index_of(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl<T> Wheel<T> {
    pub(super) fn new(now: Timestamp, batch: usize) -> Self {
        Self {
            batch,
            entries: Vec::new(),
            free: NONE,
            slots: (0..SLOTS).map(|_| TickSlot { first: NONE, renewals: 0 }).collect(),
            near: BTreeSet::new(),
            next_tick: tick_of(now) + 1,
            earliest: u64::MAX,
            far: 0,
            renewals: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.far + self.near.len()
    }

    /// Chooses when to renew, at most `early` before `at`. It prefers a command that is not full yet, otherwise the
    /// slot with the fewest renewals. Few commands are sent this way, and never very many at once.
    pub(super) fn choose(&self, at: Timestamp, early: Duration) -> Timestamp {
        let last = tick_of(at);
        let first = tick_of(at.before(early.max(TICK))) + 1;
        if self.renewals == 0 && last >= self.next_tick {
            return start_of(last);
        }
        let mut emptiest: Option<(u32, u64)> = None;
        for tick in (first.max(self.next_tick).max(last.saturating_sub(CHOICE))..=last).rev() {
            let renewals = self.slots[slot_of(tick)].renewals;
            if !index_of(renewals).is_multiple_of(self.batch) {
                return start_of(tick);
            }
            if emptiest.is_none_or(|(fewest, _)| renewals < fewest) {
                emptiest = Some((renewals, tick));
            }
        }
        emptiest.map_or(at, |(_, tick)| start_of(tick))
    }

    /// Adds an alarm. Also returns when the wheel must be visited for it.
    pub(super) fn insert(&mut self, at: Timestamp, item: T, is_renewal: bool) -> (AlarmId, Timestamp) {
        let index = match self.free {
            NONE => {
                let index = u32::try_from(self.entries.len()).unwrap_or(NEAR);
                assert!(index < NEAR, "more alarms than a process has memory for");
                let (previous, next) = (NONE, NONE);
                self.entries.push(Entry { at, item: Some(item), generation: 0, previous, next, is_renewal });
                index
            }
            index => {
                let entry = &mut self.entries[index_of(index)];
                self.free = entry.next;
                (entry.at, entry.item, entry.is_renewal) = (at, Some(item), is_renewal);
                index
            }
        };
        let id = AlarmId { index, generation: self.entries[index_of(index)].generation };
        let tick = tick_of(at);
        if tick < self.next_tick {
            self.near.insert((at, index));
            self.entries[index_of(index)].previous = NEAR;
            return (id, at);
        }
        let slot = &mut self.slots[slot_of(tick)];
        let second = std::mem::replace(&mut slot.first, index);
        slot.renewals += u32::from(is_renewal);
        self.renewals += usize::from(is_renewal);
        (self.entries[index_of(index)].previous, self.entries[index_of(index)].next) = (NONE, second);
        if let Some(second) = self.entries.get_mut(index_of(second)) {
            second.previous = index;
        }
        self.earliest = self.earliest.min(tick);
        self.far += 1;
        (id, start_of(tick))
    }

    /// Takes an alarm out, if it has not rung yet.
    pub(super) fn remove(&mut self, id: AlarmId) -> Option<T> {
        let entry = self.entries.get(index_of(id.index))?;
        if entry.generation != id.generation {
            return None;
        }
        if entry.previous == NEAR {
            self.near.remove(&(entry.at, id.index));
        } else {
            self.unlink(id.index);
        }
        self.vacate(id.index)
    }

    /// Takes out all alarms that are due.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<T> {
        let mut due = Vec::new();
        while let Some(&(at, index)) = self.near.first()
            && at <= now
        {
            self.near.pop_first();
            due.extend(self.vacate(index));
        }
        let this_tick = tick_of(now);
        if self.earliest <= this_tick {
            // After a long pause, each slot is visited only once.
            let from = self.next_tick.max(this_tick.saturating_sub(SLOTS - 1));
            for tick in from..=this_tick {
                self.begin(tick, this_tick, now, &mut due);
            }
        }
        self.next_tick = self.next_tick.max(this_tick + 1);
        self.earliest = self.earliest.max(self.next_tick);
        due
    }

    /// Empties the slot of a tick, except for alarms of a later round.
    fn begin(&mut self, tick: u64, this_tick: u64, now: Timestamp, due: &mut Vec<T>) {
        let mut index = self.slots[slot_of(tick)].first;
        while let Some(entry) = self.entries.get(index_of(index)) {
            let (at, next) = (entry.at, entry.next);
            if tick_of(at) <= this_tick {
                self.unlink(index);
                if at <= now {
                    due.extend(self.vacate(index));
                } else {
                    self.near.insert((at, index));
                    self.entries[index_of(index)].previous = NEAR;
                }
            }
            index = next;
        }
    }

    /// Returns when to visit the wheel again.
    pub(super) fn next_look(&mut self) -> Timestamp {
        let near = self.near.first().map_or(Timestamp::NEVER, |(at, _)| *at);
        if self.far == 0 {
            self.earliest = u64::MAX;
            return near;
        }
        while self.slots[slot_of(self.earliest)].first == NONE {
            self.earliest += 1;
        }
        near.min(start_of(self.earliest))
    }

    /// Returns every alarm.
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.item.as_ref())
    }

    /// Takes an entry out of its slot.
    fn unlink(&mut self, index: u32) {
        let entry = &self.entries[index_of(index)];
        let (previous, next, slot, is_renewal) =
            (entry.previous, entry.next, slot_of(tick_of(entry.at)), entry.is_renewal);
        match self.entries.get_mut(index_of(previous)) {
            Some(previous) => previous.next = next,
            None => self.slots[slot].first = next,
        }
        if let Some(next) = self.entries.get_mut(index_of(next)) {
            next.previous = previous;
        }
        self.slots[slot].renewals -= u32::from(is_renewal);
        self.renewals -= usize::from(is_renewal);
        self.far -= 1;
    }

    /// Frees the place of an entry that is not in any list.
    fn vacate(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index_of(index)];
        entry.generation = entry.generation.wrapping_add(1);
        (entry.previous, entry.next) = (NONE, self.free);
        self.free = index;
        entry.item.take()
    }
}

#[cfg(test)]
mod tests;
