//! Which master of a cluster serves which slot.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use crate::protocol::keys::hash_slot::SLOTS;
use crate::connection::url::Address;

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
mod tests {
    use redis::Value;

    use super::Topology;
    use crate::connection::url::Address;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("id")])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut range = vec![Value::Int(first), Value::Int(last)];
        range.extend_from_slice(nodes);
        Value::Array(range)
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    fn read(ranges: &[Value]) -> Option<Topology> {
        Topology::read(&Value::Array(ranges.to_vec()), "asked")
    }

    #[test]
    fn masters_are_named_and_replicas_are_not() {
        let topology = read(&[
            range(0, 99, &[node(text("10.0.0.1"), 7000), node(text("10.0.0.9"), 7009)]),
            range(100, 16382, &[node(text("redis-2.internal"), 7000)]),
        ]);
        let topology = topology.unwrap();
        let named: Vec<&Address> = topology.masters().into_iter().collect();
        assert_eq!(named, [&address("10.0.0.1", 7000), &address("redis-2.internal", 7000)]);
        assert_eq!(topology.unserved(), 1);
        let found = topology.found_of(&address("redis-2.internal", 7000));
        assert_eq!((found.ends(), found.replicas), (Some((100, 16382)), 0));
        assert_eq!([99, 100, 16382, 16383].map(|slot| found.has(slot)), [false, true, true, false]);
    }

    #[test]
    fn a_node_that_does_not_know_its_host_is_where_we_asked() {
        for unknown in [Value::Nil, text(""), text("?")] {
            let mut master = vec![unknown, Value::Int(7000), text("id")];
            // Since version 7 the answer says more about a node.
            master.push(Value::Map(vec![(text("ip"), text("10.0.0.1"))]));
            let topology = read(&[range(0, 16383, &[Value::Array(master)])]).unwrap();
            assert_eq!(topology.masters().into_iter().collect::<Vec<_>>(), [&address("asked", 7000)]);
            assert_eq!(topology.unserved(), 0);
        }
    }

    #[test]
    fn whoever_gained_a_slot_is_told() {
        let split = |at: i64| {
            read(&[range(0, at, &[node(text("a"), 1)]), range(at + 1, 16383, &[node(text("b"), 1)])]).unwrap()
        };
        assert_eq!(split(100).gained_since(&split(100)).len(), 0);
        assert_eq!(split(101).gained_since(&split(100)).into_iter().collect::<Vec<_>>(), [&address("a", 1)]);
    }

    #[test]
    fn a_master_tells_of_slots_that_others_do_not_know_it_has() {
        let topology = read(&[range(0, 100, &[node(text("a"), 1)]), range(101, 16383, &[node(text("b"), 1)])]).unwrap();
        let grown = |slots: &str| {
            let nodes =
                format!("2 b:1@2 master - 0 1 1 connected 101-16383\n1 a:1@2 myself,master - 0 1 1 connected{slots}\n");
            topology.has_grown(&address("a", 1), &nodes)
        };
        assert_eq!(grown(" 0-100"), Some(false));
        assert_eq!(grown(" 0-40 42 60-100 [41->-2]"), Some(false));
        assert_eq!(grown(" 0-100 [101-<-2]"), Some(true));
        assert_eq!(grown(" 0-101"), Some(true));
        assert_eq!(grown(""), Some(false));
        assert_eq!(grown(" x-y"), None);
        assert_eq!(grown(" 0-16384"), None);
        assert_eq!(topology.has_grown(&address("a", 1), ""), None);
    }

    #[test]
    fn open_slots_are_those_of_the_node_itself() {
        let nodes = |own: &str| {
            format!("2 b:1@2 master - 0 1 1 connected [7->-1]\n1 a:1@2 myself,master - 0 1 1 connected{own}\n")
        };
        for (own, open) in [(" 0-100", 0), (" 0-100 [41->-2]", 1), (" 0-100 [41->-2] [101-<-2]", 2), ("", 0)] {
            assert_eq!(super::open(&nodes(own)), Some(open), "{own}");
        }
        assert_eq!(super::open("2 b:1@2 master - 0 1 1 connected"), None);
    }

    #[test]
    fn redirections_name_a_host_or_none() {
        let read = |text| Address::redirected(text, "asked");
        assert_eq!(read("h:7000"), Some(address("h", 7000)));
        assert_eq!(read("::1:7000"), Some(address("::1", 7000)));
        assert_eq!(read(":7000"), Some(address("asked", 7000)));
        assert_eq!(read("?:7000"), Some(address("asked", 7000)));
        assert_eq!(read("h"), None);
        assert_eq!(read("h:70000"), None);
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        let master = |port| node(text("a"), port);
        for bad in [
            Value::Nil,
            range(0, 1, &[]),
            range(0, 16384, &[master(1)]),
            range(9, 3, &[master(1)]),
            range(-1, 3, &[master(1)]),
            range(0, 3, &[master(65536)]),
            range(0, 3, &[node(Value::Int(1), 1)]),
        ] {
            assert!(read(std::slice::from_ref(&bad)).is_none(), "{bad:?}");
        }
        assert!(Topology::read(&Value::Nil, "asked").is_none());
    }
}
