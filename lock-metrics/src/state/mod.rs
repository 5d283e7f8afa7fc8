//! The state that the observer, the sampler and the exporter share.

pub(crate) mod contention;
pub(crate) mod counts;
pub(crate) mod family;
pub(crate) mod fleet;
pub(crate) mod histogram;
pub(crate) mod node;
pub(crate) mod recovered;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod timeouts;
pub(crate) mod uses;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lock_core::Site;

use crate::state::contention::Contention;
use crate::state::family::Family;
use crate::state::fleet::Fleet;
use crate::state::node::Node;
use crate::state::recovered::Recovered;
use crate::state::store::Store;
use crate::state::table::{Hold, Row, Table};
use crate::state::timeouts::Timeouts;
use crate::state::uses::Edges;
use crate::words::checked::Checked;
use crate::words::labels::{self, place};
use crate::words::names::Names;
use crate::words::settings::Settings;
use crate::words::time::Moment;

/// The number of distinct lock names of one store. Further names are counted as `other`.
pub(crate) const MAX_LOCKS: usize = 200;
/// The number of distinct call sites of one lock name, and of distinct sites of holders, before `other`.
pub(crate) const MAX_SITES: usize = 32;
/// The number of distinct nodes of the store before `other`.
const MAX_NODES: usize = 64;
/// The number of distinct stores of one process before `other`.
pub(crate) const MAX_STORES: usize = 16;
/// The name of everything beyond a limit.
pub(crate) const OTHER: &str = "other";

/// The lock with which the inspectors of a fleet elect one of them.
pub(crate) const INSPECTOR_KEY: &str = "distributed-lock:inspector";

/// All counts, and all current holds and waits.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    /// The annotated functions.
    declared: Vec<&'static Site>,
    /// The stores in which locks are taken.
    stores: Names<Store>,
    /// Stores beyond the limit.
    other_store: Store,
    /// Stands in until a store is known, so that annotated functions have their series from the beginning.
    no_store: Store,
    pub(crate) table: Table,
    pub(crate) nodes: Names<Mutex<Node>>,
    /// Nodes beyond the limit.
    pub(crate) other_node: Mutex<Node>,
    /// Stuck holds that ended since the sampler last ran.
    pub(crate) recovered: Mutex<Vec<Recovered>>,
    /// By [`labels::OVERFLOWS`].
    pub(crate) overflows: [AtomicU64; labels::OVERFLOWS.len()],
    pub(crate) fencing_rejections: AtomicU64,
    pub(crate) checked: Checked,
    /// By [`labels::DEADLOCK_ROLES`].
    pub(crate) deadlocks: [AtomicU64; labels::DEADLOCK_ROLES.len()],
    pub(crate) edges: Edges,
    pub(crate) contention: Contention,
    pub(crate) timeouts: Timeouts,
    /// The last findings of the elected inspectors of this process, by store.
    pub(crate) fleet: Mutex<BTreeMap<String, Fleet>>,
    /// When counting began.
    pub(crate) start: Moment,
    /// When the sampler last ran.
    last_run: AtomicU64,
}

impl Core {
    /// Makes room for the given call sites, so that their series exist before the first call.
    pub(crate) fn new(sites: impl IntoIterator<Item = &'static Site>, settings: Settings) -> Self {
        let declared: Vec<_> = sites.into_iter().collect();
        Self {
            settings,
            stores: Names::new(MAX_STORES),
            other_store: Store::new(MAX_STORES, &[]),
            no_store: Store::new(MAX_STORES + 1, &declared),
            declared,
            table: Table::new(),
            nodes: Names::new(MAX_NODES),
            other_node: Mutex::default(),
            recovered: Mutex::default(),
            overflows: Default::default(),
            fencing_rejections: AtomicU64::new(0),
            checked: Checked::default(),
            deadlocks: Default::default(),
            edges: Edges::default(),
            contention: Contention::default(),
            timeouts: Timeouts::default(),
            fleet: Mutex::default(),
            start: Moment::now(),
            last_run: AtomicU64::new(0),
        }
    }

    /// Returns a store, or `other` beyond the limit.
    pub(crate) fn store(&self, name: &str) -> &Store {
        self.stores.get_or_add(name, |number| Store::new(number, &self.declared)).unwrap_or(&self.other_store)
    }

    /// Returns the family of a label in a store, or `other` beyond the limits.
    pub(crate) fn family(&self, label: &str, store: &str) -> &Family {
        self.store(store).family(label)
    }

    /// Returns the family of a label in a store, and records that it has counts.
    pub(crate) fn counted(&self, label: &str, store: &str) -> &Family {
        let family = self.family(label, store);
        family.take();
        family
    }

    /// Counts a name that exceeded a limit.
    pub(crate) fn overflowed(&self, what: &str) {
        if let Some(count) = self.overflows.get(place(&labels::OVERFLOWS, what)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether this is the store for the rest.
    pub(crate) fn is_other(&self, store: &Store) -> bool {
        std::ptr::eq(store, &self.other_store)
    }

    /// Returns the stores that are shown, with their names. Before the first store is known, returns one without a
    /// name: a label without a value equals a missing label.
    pub(crate) fn shown_stores(&self) -> impl Iterator<Item = (&str, &Store)> {
        let none = self.stores.nth(0).is_none().then_some(("", &self.no_store));
        let rest = self.stores.is_full().then_some((OTHER, &self.other_store));
        none.into_iter().chain(self.stores.iter()).chain(rest)
    }

    /// Returns whether a family is shown in its store. A family that is only annotated is hidden after it was taken in
    /// another store.
    pub(crate) fn is_shown(&self, label: &str, family: &Family) -> bool {
        let taken = |(_, store): (&str, &Store)| store.known(label).is_some_and(Family::is_taken);
        family.is_taken() || !self.stores.iter().any(taken)
    }

    /// Returns a node, or `other` beyond the limit.
    pub(crate) fn node(&self, name: &str) -> &Mutex<Node> {
        self.nodes.get_or_add(name, |_| Mutex::default()).unwrap_or(&self.other_node)
    }

    pub(crate) fn ran(&self, now: Moment) {
        self.last_run.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn last_run(&self) -> Moment {
        Moment::from_nanos(self.last_run.load(Ordering::Relaxed))
    }

    /// Keeps the findings of a store's elected inspector, or forgets them. When another instance exports them, zeros
    /// beside its numbers would be wrong.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn publish(&self, store: &str, found: Option<Fleet>) {
        let mut fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => drop(fleet.insert(store.to_owned(), found)),
            None => drop(fleet.remove(store)),
        }
    }

    /// Returns whether writes under the lock of this hold, or of earlier holds, were checked against their tokens.
    pub(crate) fn is_fenced(&self, family: &Family, hold: &Hold) -> bool {
        if !family.fenced.load(Ordering::Relaxed) && self.checked.contains(hold.token) {
            family.fenced.store(true, Ordering::Relaxed);
        }
        family.fenced.load(Ordering::Relaxed)
    }

    /// Returns the store of the family with this number, with its name.
    pub(crate) fn store_of(&self, family: usize) -> (&str, &Store) {
        match Store::of(family) {
            MAX_STORES => (OTHER, &self.other_store),
            number => self.stores.nth(number).unwrap_or(("", &self.no_store)),
        }
    }

    /// Returns the family with this number, with its lock name.
    pub(crate) fn nth_family(&self, number: usize) -> (&str, &Family) {
        self.store_of(number).1.nth(number)
    }

    /// Returns the lock name and the call site of a row.
    pub(crate) fn names(&self, row: &Row) -> (&str, &str) {
        let (lock, family) = self.nth_family(row.family());
        let site = match row.site() {
            MAX_SITES => OTHER,
            number => family.sites.nth(number).map_or(OTHER, |(site, _)| site),
        };
        (lock, site)
    }

    pub(crate) fn push_recovered(&self, recovered: Recovered) {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner).push(recovered);
    }
}
