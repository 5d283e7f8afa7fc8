//! The order in which locks are taken inside each other. Linux's lockdep watches it the same way: by classes of locks,
//! before anything blocks.
//!
//! A graph of labels has an edge from each lock that a task holds to each lock that it waits for at the same time. A
//! path back means that two callers can wait for each other, although they may never have done so.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::types::key::{LockKey, LockLabel};
use crate::types::system::sync::{Mutex, MutexGuard};

/// How many pairs of labels are remembered. Most programs have few labels. A program that makes up labels at run time
/// gets no more warnings beyond this number.
const MAX_EDGES: usize = 4096;

/// One end of an edge.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    pub label: &'a LockLabel,
    pub key: &'a LockKey,
    /// The place where it is taken.
    pub site: &'static str,
}

impl Taken<'_> {
    /// Returns whether its label is only the place in the source. Such locks do not form a family.
    fn is_unnamed(&self) -> bool {
        self.label.as_str() == self.site
    }
}

/// The order that was seen in one manager.
#[derive(Debug, Default)]
pub struct OrderGraph(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// From each held label to the labels that were waited for, with the place.
    edges: HashMap<LockLabel, HashMap<LockLabel, &'static str>>,
    count: usize,
    /// Pairs that were reported.
    reported: HashSet<(LockLabel, LockLabel)>,
    inversions: Vec<OrderInversion>,
}

impl OrderGraph {
    /// Notes that one lock is waited for while another is held. Returns the inversion that this makes possible, the
    /// first time.
    #[doc(hidden)]
    pub fn note(&self, held: Taken<'_>, wanted: Taken<'_>) -> Option<OrderInversion> {
        if held.key == wanted.key {
            return None;
        }
        let mut seen = self.seen();
        let inversion = if held.label == wanted.label {
            // Within one family, all callers must take locks in the same order: the order of `lock_all`.
            let ordered = held.key < wanted.key || held.is_unnamed();
            (!ordered).then(|| OrderInversion::new(held, wanted, held.site, Vec::new()))?
        } else {
            if !seen.add(held, wanted) {
                return None;
            }
            let (way, site) = seen.way(wanted.label, held.label)?;
            OrderInversion::new(held, wanted, site, way)
        };
        let pair = if held.label.as_str() < wanted.label.as_str() { (held, wanted) } else { (wanted, held) };
        if !seen.reported.insert((pair.0.label.clone(), pair.1.label.clone())) {
            return None;
        }
        seen.inversions.push(inversion.clone());
        Some(inversion)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock()
    }
}

impl Seen {
    /// Adds an edge. Returns whether it is new.
    fn add(&mut self, held: Taken<'_>, wanted: Taken<'_>) -> bool {
        let known = self.edges.get(held.label).is_some_and(|edges| edges.contains_key(wanted.label));
        if known || self.count == MAX_EDGES {
            return false;
        }
        self.count += 1;
        self.edges.entry(held.label.clone()).or_default().insert(wanted.label.clone(), wanted.site);
        true
    }

    /// Finds the shortest path between two labels. Returns its labels, with both ends, and the place of its last edge.
    fn way(&self, from: &LockLabel, to: &LockLabel) -> Option<(Vec<LockLabel>, &'static str)> {
        let mut before: HashMap<&LockLabel, &LockLabel> = HashMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(label) = next.pop_front() {
            for (wanted, site) in self.edges.get(label).into_iter().flatten() {
                if wanted == to {
                    let mut way = vec![to.clone()];
                    let mut at = Some(label);
                    while let Some(label) = at {
                        way.push(label.clone());
                        at = before.get(label).copied();
                    }
                    way.reverse();
                    return Some((way, site));
                }
                if wanted != from && !before.contains_key(wanted) {
                    before.insert(wanted, label);
                    next.push_back(wanted);
                }
            }
        }
        None
    }
}

/// Two families of locks that are taken in both orders, so that two callers can wait for each other.
///
/// Reported once for each pair by [`Notice::OrderInverted`](crate::Notice::OrderInverted), even if no caller waited.
/// `LockManager::lock_order` has an example of [`OrderInversion`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderInversion {
    /// The lock that was held.
    pub held: LockLabel,
    /// The lock that was waited for under it.
    pub wanted: LockLabel,
    /// The place where this happened.
    pub site: &'static str,
    /// The place where `held` is taken under `wanted`, or under a lock that is taken under `wanted`. If both are of one
    /// family, the place where the held lock was taken.
    pub other_site: &'static str,
    /// The path back, from `wanted` to `held`. Empty if both are of one family.
    pub way: Vec<LockLabel>,
}

impl OrderInversion {
    fn new(held: Taken<'_>, wanted: Taken<'_>, other_site: &'static str, way: Vec<LockLabel>) -> Self {
        Self { held: held.label.clone(), wanted: wanted.label.clone(), site: wanted.site, other_site, way }
    }
}

impl fmt::Display for OrderInversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, wanted, site, other_site, way } = self;
        let (held, wanted) = (held.as_str(), wanted.as_str());
        if way.is_empty() {
            return write!(
                f,
                "a lock of {wanted:?} is taken at {site} under one with a greater key, taken at {other_site}, so two callers \
                 can wait for each other; take several of one family together, with lock_all, or in ascending order of \
                 their keys"
            );
        }
        write!(f, "{wanted:?} is taken at {site} under {held:?}, but {held:?} at {other_site} ")?;
        match way.as_slice() {
            [_, _] => write!(f, "under {wanted:?}")?,
            way => {
                let way: Vec<&str> = way.iter().map(LockLabel::as_str).collect();
                write!(f, "on the way {}", way.join(" → "))?;
            }
        }
        f.write_str(
            ", so two callers can wait for each other; take them in one order everywhere, or together with lock_all",
        )
    }
}

/// The order in which the locks of a manager were taken inside each other. Made by
/// `LockManager::lock_order`, which has the example of [`LockOrder`].
#[derive(Clone, Debug)]
pub struct LockOrder(Option<Arc<OrderGraph>>);

impl LockOrder {
    #[doc(hidden)]
    #[must_use]
    pub fn of(graph: Option<&Arc<OrderGraph>>) -> Self {
        Self(graph.cloned())
    }

    /// Returns the pairs that were taken in both orders so far.
    #[must_use]
    pub fn inversions(&self) -> Vec<OrderInversion> {
        self.0.as_ref().map(|graph| graph.seen().inversions.clone()).unwrap_or_default()
    }

    /// Checks that no two locks were taken in both orders. Call it at the end of a test.
    ///
    /// # Panics
    ///
    /// Panics if some were, with their names and places. Also panics if the order is not watched, because it is then
    /// unknown.
    #[track_caller]
    pub fn assert_consistent(&self) {
        assert!(
            self.0.is_some(),
            "the order of locks is not watched; build the manager with lint_lock_order(true), or the crate with test-util"
        );
        let found = self.inversions();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "locks are taken in two orders:\n{}", lines.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_EDGES, OrderGraph, Taken};
    use crate::types::key::{LockKey, LockLabel};

    /// Notes that `wanted` is waited for under `held`. Each text is both the label and the key.
    fn note(graph: &OrderGraph, held: &str, wanted: &str) -> Option<String> {
        let end = |text: &str| (LockLabel::new(text.to_owned()), LockKey::new(text).unwrap());
        let (held, wanted) = (end(held), end(wanted));
        let held = Taken { label: &held.0, key: &held.1, site: "at::held" };
        let wanted = Taken { label: &wanted.0, key: &wanted.1, site: "at::wanted" };
        graph.note(held, wanted).map(|inversion| inversion.to_string())
    }

    #[test]
    fn a_way_back_is_found_however_long_and_reported_once() {
        let graph = OrderGraph::default();
        for (held, wanted) in [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "b"), ("b", "d")] {
            assert_eq!(note(&graph, held, wanted), None, "{held} {wanted}");
        }
        let found = note(&graph, "d", "a").unwrap();
        assert!(found.contains("\"a\" is taken at at::wanted under \"d\"") && found.contains("under \"a\""), "{found}");
        assert_eq!(note(&graph, "d", "a"), None, "once a pair");
        let found = note(&graph, "d", "b").unwrap();
        assert!(found.contains("under \"b\""), "{found}");
        let found = note(&graph, "e", "a");
        assert_eq!(found, None);
        let found = note(&graph, "c", "e").unwrap();
        assert!(found.contains("on the way e → a → b → c"), "{found}");
    }

    #[test]
    fn of_one_family_only_ascending_keys_are_in_order() {
        let graph = OrderGraph::default();
        let (family, keys) =
            (LockLabel::from_static("user:<id>"), ["user:1", "user:2"].map(|key| LockKey::new(key).unwrap()));
        let taken = |key: usize| Taken { label: &family, key: &keys[key], site: "shop::charge" };
        assert_eq!(graph.note(taken(0), taken(1)), None);
        assert_eq!(graph.note(taken(0), taken(0)), None, "the same lock");
        let found = graph.note(taken(1), taken(0)).unwrap().to_string();
        assert!(found.contains("ascending"), "{found}");
        assert_eq!(graph.note(taken(1), taken(0)), None, "once");
        // Locks without a name only have the line in common.
        let line = LockLabel::from_static("shop/src/main.rs:7");
        let taken = |key: usize| Taken { label: &line, key: &keys[key], site: "shop/src/main.rs:7" };
        assert_eq!(graph.note(taken(1), taken(0)), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let graph = OrderGraph::default();
        for number in 0..MAX_EDGES + 10 {
            note(&graph, &format!("{number:05}"), "z");
        }
        assert_eq!(graph.seen().count, MAX_EDGES);
    }
}
