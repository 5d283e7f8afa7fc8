//! The state that the observer, the sampler and the exporter share.

pub(crate) mod counts;
pub(crate) mod fleet;
pub(crate) mod histogram;
pub(crate) mod recovered;
pub(crate) mod table;
pub(crate) mod uses;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{LockEvent, LockOptions, Site};

use crate::state::counts::{COMMAND_BUCKETS, CONFIRM_BUCKETS, Counter};
use crate::state::fleet::Fleet;
use crate::state::histogram::Histogram;
use crate::state::recovered::Recovered;
use crate::state::table::{Hold, Row, Table};
use crate::state::uses::{Edges, Permits, Uses, raise};
use crate::words::checked::Checked;
use crate::words::labels;
use crate::words::names::Names;
use crate::words::settings::Settings;
use crate::words::time::{Moment, nanos};

/// The number of distinct lock names; any more are counted as `other`.
pub(crate) const MAX_LOCKS: usize = 200;
/// The number of distinct call sites of one lock name, and of distinct sites of holders, before
/// `other`.
pub(crate) const MAX_SITES: usize = 32;
/// The number of distinct nodes of the store before `other`.
const MAX_NODES: usize = 64;
/// The number of distinct stores of one process before `other`.
pub(crate) const MAX_STORES: usize = 16;
/// The name of everything beyond a limit.
pub(crate) const OTHER: &str = "other";

/// The lock with which the inspectors of a fleet elect one of them.
pub(crate) const INSPECTOR_KEY: &str = "distributed-lock:inspector";

/// All counts, and everything that is going on now.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) families: Names<Family>,
    /// Lock names beyond the limit.
    pub(crate) other: Family,
    pub(crate) table: Table,
    /// The stores in which locks are taken.
    pub(crate) stores: Names<usize>,
    pub(crate) nodes: Names<Mutex<Node>>,
    /// Nodes beyond the limit.
    pub(crate) other_node: Mutex<Node>,
    /// Stuck holds that ended since the sampler last ran.
    pub(crate) recovered: Mutex<Vec<Recovered>>,
    pub(crate) label_overflow: AtomicU64,
    pub(crate) fencing_rejections: AtomicU64,
    pub(crate) checked: Checked,
    /// By [`labels::DEADLOCK_ROLES`].
    pub(crate) deadlocks: [AtomicU64; labels::DEADLOCK_ROLES.len()],
    pub(crate) edges: Edges,
    /// What the elected inspectors of this process found last, by store.
    pub(crate) fleet: Mutex<BTreeMap<String, Fleet>>,
    /// When counting began.
    pub(crate) start: Moment,
    /// When the sampler last ran.
    last_run: AtomicU64,
}

/// One lock name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) number: usize,
    /// The call sites that take it in this process.
    pub(crate) sites: Names<CallSite>,
    /// Call sites beyond the limit.
    other_site: CallSite,
    /// The stores in which it was taken, one bit for each.
    stores: AtomicU32,
    /// The time for which it was held, as last exported: a total must not fall.
    pub(crate) held_nanos: AtomicU64,
    /// The call sites that made callers of this process wait for it.
    pub(crate) holders: Names<usize>,
    /// The largest lease seen, 0 before the first.
    ttl: AtomicU64,
    /// Whether a token of it was seen to be checked.
    fenced: AtomicBool,
    pub(crate) uses: Uses,
}

/// A call site that takes a lock.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub(crate) number: usize,
    /// Whether it is a function with the attribute, so that its name is that of the function.
    pub(crate) is_function: bool,
    /// The largest threshold seen, 0 before the first.
    stuck_after: AtomicU64,
    pub(crate) permits: Permits,
}

/// One node of the store.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// By [`labels::OPS`].
    pub(crate) commands: [Histogram<COMMAND_BUCKETS>; labels::OPS.len()],
    /// By [`labels::ERROR_KINDS`].
    pub(crate) errors: Counter<{ labels::ERROR_KINDS.len() }>,
    /// Unknown until the watchdog reports it: a false 0 would be a false alarm.
    pub(crate) connected: Option<bool>,
    /// The index of its policy in [`labels::POLICIES`], if it may evict.
    pub(crate) policy: Option<usize>,
    pub(crate) failovers: u64,
    /// By [`labels::CHANGES`].
    pub(crate) changes: [u64; labels::CHANGES.len()],
    /// By [`labels::REDIRECTIONS`].
    pub(crate) redirections: [u64; labels::REDIRECTIONS.len()],
    /// Its replicas, and how many must have a write.
    pub(crate) replicas: Option<(u32, u32)>,
    /// How many slots it is giving away or taking over, if it is a master of a cluster.
    pub(crate) slots_open: Option<u32>,
    pub(crate) confirmations: Histogram<CONFIRM_BUCKETS>,
    pub(crate) shortfalls: u64,
    /// What it is, if it is a quorum.
    pub(crate) quorum: Option<Members>,
    /// How many claims were given to it again, if it is a member of a quorum.
    pub(crate) repairs: Option<u64>,
}

/// The members of a quorum.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By [`labels::MEMBER_STATES`].
    pub(crate) states: [u32; labels::MEMBER_STATES.len()],
    pub(crate) majority: u32,
    pub(crate) degraded_holds: u32,
    /// By [`labels::PHASES`].
    pub(crate) rounds: [u64; labels::PHASES.len()],
}

impl Core {
    /// Makes room for the given call sites, so that their series exist before the first call.
    pub(crate) fn new<'a>(sites: impl IntoIterator<Item = &'a Site>, settings: Settings) -> Self {
        let core = Self {
            settings,
            families: Names::new(MAX_LOCKS),
            other: Family::new(MAX_LOCKS),
            table: Table::new(),
            stores: Names::new(MAX_STORES),
            nodes: Names::new(MAX_NODES),
            other_node: Mutex::default(),
            recovered: Mutex::default(),
            label_overflow: AtomicU64::new(0),
            fencing_rejections: AtomicU64::new(0),
            checked: Checked::default(),
            deadlocks: Default::default(),
            edges: Edges::default(),
            fleet: Mutex::default(),
            start: Moment::now(),
            last_run: AtomicU64::new(0),
        };
        for site in sites {
            let family = core.family(site.label);
            family.holder(site.function());
            raise(&family.ttl, nanos(site.ttl.unwrap_or_default()));
            let stuck_after = site.stuck_after.or_else(|| site.ttl.map(threshold)).unwrap_or_default();
            let place = |number| CallSite::new(number, true);
            let place = family.sites.get_or_add(site.function(), place).unwrap_or(&family.other_site);
            raise(&place.stuck_after, nanos(stuck_after));
        }
        core
    }

    /// Returns the family of a label, `other` beyond the limit.
    pub(crate) fn family(&self, label: &str) -> &Family {
        self.families.get_or_add(label, Family::new).unwrap_or(&self.other)
    }

    /// Returns the number of a store, [`MAX_STORES`] beyond the limit, and records that the family uses
    /// it.
    pub(crate) fn store(&self, family: &Family, store: &str) -> usize {
        let number = self.stores.get_or_add(store, |number| number).copied().unwrap_or(MAX_STORES);
        if family.stores.load(Ordering::Relaxed) >> number & 1 == 0 {
            family.stores.fetch_or(1 << number, Ordering::Relaxed);
        }
        number
    }

    /// Returns the stores of a family with their names: all known stores until the family is taken in
    /// one.
    pub(crate) fn stores_of(&self, family: &Family) -> Vec<(usize, &str)> {
        let used = family.stores.load(Ordering::Relaxed);
        let known = self.stores.iter().map(|(name, number)| (*number, name));
        let all: Vec<_> = known.chain([(MAX_STORES, OTHER)]).collect();
        let picked: Vec<_> = all.iter().copied().filter(|(number, _)| used >> number & 1 == 1).collect();
        match (picked.is_empty(), all.len()) {
            (false, _) => picked,
            // A label without a value is the same as no label.
            (true, 1) => vec![(0, "")],
            (true, _) => all.into_iter().filter(|(number, _)| *number != MAX_STORES).collect(),
        }
    }

    /// Returns a node, `other` beyond the limit.
    pub(crate) fn node(&self, name: &str) -> &Mutex<Node> {
        self.nodes.get_or_add(name, |_| Mutex::default()).unwrap_or(&self.other_node)
    }

    pub(crate) fn ran(&self, now: Moment) {
        self.last_run.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn last_run(&self) -> Moment {
        Moment::from_nanos(self.last_run.load(Ordering::Relaxed))
    }

    /// Keeps what the elected inspector of a store found, or forgets it: another instance exports it
    /// now, and zeros beside its numbers would be wrong.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn publish(&self, store: &str, found: Option<Fleet>) {
        let mut fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => drop(fleet.insert(store.to_owned(), found)),
            None => drop(fleet.remove(store)),
        }
    }

    /// Returns whether writes under the lock of this hold were checked against its token, or those of earlier holds against
    /// theirs.
    pub(crate) fn is_fenced(&self, family: &Family, hold: &Hold) -> bool {
        if !family.fenced.load(Ordering::Relaxed) && self.checked.contains(hold.token) {
            family.fenced.store(true, Ordering::Relaxed);
        }
        family.fenced.load(Ordering::Relaxed)
    }

    /// Returns the lock name of a row.
    pub(crate) fn family_of(&self, row: &Row) -> (&str, &Family) {
        match row.family() {
            MAX_LOCKS => (OTHER, &self.other),
            number => self.families.nth(number).unwrap_or((OTHER, &self.other)),
        }
    }

    /// Returns the lock name and the call site of a row.
    pub(crate) fn names(&self, row: &Row) -> (&str, &str) {
        let (lock, family) = self.family_of(row);
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

impl Family {
    fn new(number: usize) -> Self {
        Self {
            number,
            sites: Names::new(MAX_SITES),
            other_site: CallSite::new(MAX_SITES, false),
            stores: AtomicU32::new(0),
            held_nanos: AtomicU64::new(0),
            holders: Names::new(MAX_SITES),
            ttl: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            uses: Uses::default(),
        }
    }

    /// Returns the number of a call site, [`MAX_SITES`] beyond the limit, and records its settings.
    pub(crate) fn site(&self, event: &LockEvent<'_>) -> usize {
        let site = self.sites.get_or_add(event.site, |number| CallSite::new(number, false)).unwrap_or(&self.other_site);
        raise(&self.ttl, nanos(event.ttl));
        raise(&site.stuck_after, nanos(event.stuck_after));
        site.permits.note(event.mode);
        self.uses.note(event.purpose);
        site.number
    }

    /// Returns every call site with its name, and the one for the rest if there can be one.
    pub(crate) fn call_sites(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        self.sites.iter().chain(self.sites.is_full().then_some((OTHER, &self.other_site)))
    }

    /// Returns the number of a holder's call site, [`MAX_SITES`] beyond the limit.
    pub(crate) fn holder(&self, site: &str) -> usize {
        self.holders.get_or_add(site, |number| number).copied().unwrap_or(MAX_SITES)
    }

    /// Returns the largest lease seen, the default before the first.
    pub(crate) fn ttl(&self) -> Duration {
        match self.ttl.load(Ordering::Relaxed) {
            0 => LockOptions::default().ttl,
            ttl => Duration::from_nanos(ttl),
        }
    }
}

impl CallSite {
    fn new(number: usize, is_function: bool) -> Self {
        Self { number, is_function, stuck_after: AtomicU64::new(0), permits: Permits::default() }
    }

    /// Returns the largest threshold seen, or the default for the family's lease before the first.
    pub(crate) fn stuck_after(&self, family: &Family) -> Duration {
        match self.stuck_after.load(Ordering::Relaxed) {
            0 => threshold(family.ttl()),
            stuck_after => Duration::from_nanos(stuck_after),
        }
    }
}

/// Returns the default threshold for a lease.
fn threshold(ttl: Duration) -> Duration {
    let mut options = LockOptions::default();
    options.ttl = ttl;
    options.stuck_threshold()
}
