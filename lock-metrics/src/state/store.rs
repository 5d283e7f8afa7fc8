//! One store in which locks are taken: a server, a cluster or a quorum, and a namespace in it. The same name in two
//! stores means two locks.

use std::sync::OnceLock;

use lock_core::Site;

use crate::state::family::Family;
use crate::state::{MAX_LOCKS, OTHER};
use crate::words::names::Names;
use crate::words::time::StoreClock;

/// How many numbers the families of one store have: one for each name below the limit, and one for the rest.
const NUMBERS: usize = MAX_LOCKS + 1;

/// One store.
#[derive(Debug)]
pub(crate) struct Store {
    number: usize,
    families: Names<Family>,
    /// Lock names beyond the limit.
    other: Family,
    pub(crate) clock: StoreClock,
    /// The node behind it, once a manager was built for it.
    node: OnceLock<Box<str>>,
}

impl Store {
    /// Makes room for the locks of annotated functions.
    pub(crate) fn new(number: usize, declared: &[&'static Site]) -> Self {
        let store = Self {
            number,
            families: Names::new(MAX_LOCKS),
            other: Family::new(number * NUMBERS + MAX_LOCKS),
            clock: StoreClock::default(),
            node: OnceLock::new(),
        };
        for site in declared {
            store.family(site.label).declare(site);
        }
        store
    }

    /// Notes the node behind it.
    pub(crate) fn is_at(&self, node: &str) {
        self.node.get_or_init(|| node.into());
    }

    /// Returns the node behind it, if it is known.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.get().map(|node| &**node)
    }

    /// Returns the family of a label, or the family for the rest beyond the limit.
    pub(crate) fn family(&self, label: &str) -> &Family {
        let first = self.number * NUMBERS;
        self.families.get_or_add(label, |number| Family::new(first + number)).unwrap_or(&self.other)
    }

    /// Returns whether this is the family for the rest.
    pub(crate) fn is_other(&self, family: &Family) -> bool {
        std::ptr::eq(family, &self.other)
    }

    /// Returns the family of a label, if it exists.
    pub(crate) fn known(&self, label: &str) -> Option<&Family> {
        self.families.find_known(label)
    }

    /// Returns every family with its name, and the family for the rest if it has counts.
    pub(crate) fn families(&self) -> impl Iterator<Item = (&str, &Family)> {
        self.families.iter().chain(self.other.is_taken().then_some((OTHER, &self.other)))
    }

    /// Returns the family with this number, with its name.
    pub(crate) fn nth(&self, number: usize) -> (&str, &Family) {
        self.families.nth(number % NUMBERS).unwrap_or((OTHER, &self.other))
    }

    /// Returns the number of the store of a family.
    pub(crate) const fn of(family: usize) -> usize {
        family / NUMBERS
    }
}
