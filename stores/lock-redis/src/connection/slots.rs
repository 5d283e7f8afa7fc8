//! Which master of a cluster serves which slot.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use crate::connection::url::Address;
use crate::protocol::keys::hash_slot::SLOTS;

impl Address {
    /// Makes an address from what a node says about another node or itself. If it does not know the
    /// host, the host is the one that was asked.
    fn announced(host: &str, port: u16, asked: &str) -> Self {
        // A node that should announce a host name but has none announces a question mark.
        let host = if matches!(host, "" | "?") { asked } else { host };
        Self { host: host.to_owned(), port }
    }

    /// Reads what a redirection names, as in `10.0.0.1:6379`, `:6379` and `::1:6379`.
    pub(crate) fn redirected(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::announced(host, port.parse().ok()?, asked))
    }
}

/// The masters of a cluster, as one of its nodes sees them.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// The master of each slot, by its place in `masters`; `None` if no master serves it.
    by_slot: Vec<Option<u16>>,
    /// The masters, and how many replicas each has that could take over.
    masters: Vec<(Address, u64)>,
}

/// The state of a master as a refresh finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The slots that it serves, from the first to the last of each row.
    slots: Vec<(u16, u16)>,
    /// How many replicas it has that could take over.
    pub(crate) replicas: u64,
}

impl Found {
    /// Returns the first and the last slot that it serves.
    pub(crate) fn ends(&self) -> Option<(u16, u16)> {
        Some((self.slots.first()?.0, self.slots.last()?.1))
    }

    /// Returns whether it serves a slot.
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

impl Topology {
    /// Reads an answer to `CLUSTER SLOTS`: ranges, each with its master and then its replicas. `None` if
    /// it cannot be read.
    pub(crate) fn read(answer: &Value, asked: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut by_slot = vec![None; SLOTS];
        let (mut masters, mut places) = (Vec::new(), BTreeMap::new());
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), replicas @ ..] = range.as_slice() else {
                return None;
            };
            let [host, Value::Int(port), ..] = master.as_slice() else { return None };
            let host = match host {
                Value::Nil => "",
                Value::BulkString(host) => std::str::from_utf8(host).ok()?,
                _ => return None,
            };
            let master = Address::announced(host, u16::try_from(*port).ok()?, asked);
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let place = *places.entry(master).or_insert_with_key(|master| {
                masters.push((master.clone(), 0));
                masters.len() - 1
            });
            masters[place].1 = u64::try_from(replicas.len()).ok()?;
            by_slot.get_mut(first..=last)?.fill(Some(u16::try_from(place).ok()?));
        }
        Some(Self { by_slot, masters })
    }

    /// Returns what is known of a master.
    pub(crate) fn found_of(&self, master: &Address) -> Found {
        let Some(place) = self.place_of(master) else { return Found::default() };
        let mut slots: Vec<(u16, u16)> = Vec::new();
        for (slot, _) in (0..).zip(&self.by_slot).filter(|(_, by)| **by == Some(place)) {
            match slots.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => slots.push((slot, slot)),
            }
        }
        Found { slots, replicas: self.masters[usize::from(place)].1 }
    }

    /// Returns how many replicas could take over from the master of a slot, unless no master serves it.
    pub(crate) fn replicas_in(&self, slot: u16) -> Option<u64> {
        let place = (*self.by_slot.get(usize::from(slot))?)?;
        Some(self.masters[usize::from(place)].1)
    }

    fn place_of(&self, master: &Address) -> Option<u16> {
        let place = self.masters.iter().position(|(address, _)| address == master)?;
        u16::try_from(place).ok()
    }

    fn at(&self, place: Option<u16>) -> Option<&Address> {
        place.map(|place| &self.masters[usize::from(place)].0)
    }

    /// Returns for each slot what `of` says of its master. It is asked once for each master: there are many slots.
    pub(crate) fn each_slot<T: Copy>(&self, of: impl Fn(&Address) -> Option<T>) -> impl Iterator<Item = Option<T>> {
        let of: Vec<Option<T>> = self.masters.iter().map(|(address, _)| of(address)).collect();
        self.by_slot.iter().map(move |place| of[usize::from((*place)?)])
    }

    /// Returns how many slots no master serves.
    pub(crate) fn unserved(&self) -> usize {
        self.by_slot.iter().filter(|master| master.is_none()).count()
    }

    /// Returns the masters that serve at least one slot.
    pub(crate) fn masters(&self) -> BTreeSet<&Address> {
        let places: BTreeSet<u16> = self.by_slot.iter().flatten().copied().collect();
        places.into_iter().filter_map(|place| self.at(Some(place))).collect()
    }

    /// Returns how many slots a master serves.
    #[cfg(feature = "inspect")]
    pub(crate) fn served_by(&self, master: &Address) -> usize {
        let place = self.place_of(master);
        self.by_slot.iter().filter(|by| place.is_some() && **by == place).count()
    }

    /// Reads a master's line about itself in `CLUSTER NODES`: whether it is taking over a slot, or has
    /// one that belongs to another master in this topology. `None` if it cannot be read.
    #[cfg(any(test, feature = "inspect"))]
    pub(crate) fn has_grown(&self, master: &Address, nodes: &str) -> Option<bool> {
        let own = nodes.lines().find(|node| node.contains("myself"))?;
        for slots in own.split(' ').skip(8) {
            if slots.starts_with('[') {
                if slots.contains("-<-") {
                    return Some(true);
                }
                continue;
            }
            let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
            let served = self.by_slot.get(first.parse().ok()?..=last.parse().ok()?)?;
            if served.iter().any(|other| self.at(*other) != Some(master)) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Returns the masters that serve a slot that another master served before.
    #[cfg(any(test, feature = "inspect"))]
    pub(crate) fn gained_since<'a>(&'a self, before: &Self) -> BTreeSet<&'a Address> {
        let slots = self.by_slot.iter().zip(&before.by_slot).map(|(now, then)| (self.at(*now), before.at(*then)));
        slots.filter(|(now, then)| now != then).filter_map(|(now, _)| now).collect()
    }
}

/// Counts the slots of which a node says in `CLUSTER NODES` that they are being moved, from it or to it. `None` if it
/// says nothing about itself.
pub(crate) fn open(nodes: &str) -> Option<u32> {
    let own = nodes.lines().find(|node| node.contains("myself"))?;
    u32::try_from(own.split(' ').skip(8).filter(|slots| slots.starts_with('[')).count()).ok()
}

#[cfg(test)]
#[path = "tests/slots.rs"]
mod tests;
