//! The state that observer, sampler and exporter share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{LockOptions, Site};

use crate::counts::{COMMAND_BUCKETS, Counter};
use crate::fleet::Fleet;
use crate::histogram::Histogram;
use crate::labels;
use crate::names::Names;
use crate::sampler::Recovered;
use crate::table::Table;
use crate::time::{UnixTime, nanos};

/// Distinct lock names before everything else is counted as `other`.
pub(crate) const MAX_LOCKS: usize = 200;
/// Distinct call sites of one lock name, and distinct holders' sites, before `other`.
pub(crate) const MAX_SITES: usize = 32;
/// Distinct nodes of the store before `other`.
const MAX_NODES: usize = 64;
/// The name of everything beyond a limit.
pub(crate) const OTHER: &str = "other";

/// The lock by which the fleet's inspectors elect one.
pub(crate) const INSPECTOR_KEY: &str = "distributed-lock:inspector";

/// Everything counted and everything going on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) families: Names<Family>,
    /// Lock names beyond the limit.
    pub(crate) other: Family,
    pub(crate) table: Table,
    pub(crate) nodes: Names<Mutex<Node>>,
    /// Nodes beyond the limit.
    pub(crate) other_node: Mutex<Node>,
    /// Stuck holds that ended since the sampler last ran.
    pub(crate) recovered: Mutex<Vec<Recovered>>,
    pub(crate) label_overflow: AtomicU64,
    pub(crate) fencing_rejections: AtomicU64,
    /// What the inspector of this process found last, if there is one.
    pub(crate) fleet: Mutex<Option<Fleet>>,
    /// When the sampler last ran.
    last_run: AtomicU64,
}

/// One lock name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) number: usize,
    /// Who takes it in this process.
    pub(crate) sites: Names<usize>,
    /// Who made callers of this process wait for it.
    pub(crate) holders: Names<usize>,
    /// The largest lease seen, 0 before the first.
    ttl: AtomicU64,
    /// The largest threshold seen, 0 before the first.
    stuck_after: AtomicU64,
}

/// One node of the store.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// By [`labels::OPS`].
    pub(crate) commands: [Histogram<COMMAND_BUCKETS>; labels::OPS.len()],
    /// By [`labels::ERROR_KINDS`].
    pub(crate) errors: Counter<{ labels::ERROR_KINDS.len() }>,
    /// Unknown until the watchdog says so: a false 0 would be a false alarm.
    pub(crate) connected: Option<bool>,
    /// By [`labels::POLICIES`]: whether it is set, once it was.
    pub(crate) policies: [Option<bool>; labels::POLICIES.len()],
}

impl Core {
    /// Makes room for the given call sites, so that their series exist before the first call.
    pub(crate) fn new<'a>(sites: impl IntoIterator<Item = &'a Site>) -> Self {
        let core = Self {
            families: Names::new(MAX_LOCKS),
            other: Family::new(MAX_LOCKS),
            table: Table::new(),
            nodes: Names::new(MAX_NODES),
            other_node: Mutex::default(),
            recovered: Mutex::default(),
            label_overflow: AtomicU64::new(0),
            fencing_rejections: AtomicU64::new(0),
            fleet: Mutex::default(),
            last_run: AtomicU64::new(0),
        };
        for site in sites {
            let family = core.family(site.label);
            family.site(site.function());
            family.holder(site.function());
            if let Some(ttl) = site.ttl {
                family.note(ttl, site.stuck_after.unwrap_or_else(|| threshold(ttl)));
            } else if let Some(stuck_after) = site.stuck_after {
                family.note(Duration::ZERO, stuck_after);
            }
        }
        core
    }

    /// Returns the family of a label, `other` beyond the limit.
    pub(crate) fn family(&self, label: &str) -> &Family {
        self.families.get_or_add(label, Family::new).unwrap_or(&self.other)
    }

    /// Returns a node, `other` beyond the limit.
    pub(crate) fn node(&self, name: &str) -> &Mutex<Node> {
        self.nodes.get_or_add(name, |_| Mutex::default()).unwrap_or(&self.other_node)
    }

    pub(crate) fn ran(&self, now: UnixTime) {
        self.last_run.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn last_run(&self) -> UnixTime {
        UnixTime::from_nanos(self.last_run.load(Ordering::Relaxed))
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
            holders: Names::new(MAX_SITES),
            ttl: AtomicU64::new(0),
            stuck_after: AtomicU64::new(0),
        }
    }

    /// Returns the number of a call site, [`MAX_SITES`] beyond the limit.
    pub(crate) fn site(&self, site: &str) -> usize {
        self.sites.get_or_add(site, |number| number).copied().unwrap_or(MAX_SITES)
    }

    /// Returns whether call sites beyond the limit can have come.
    pub(crate) fn has_more_sites(&self) -> bool {
        self.sites.is_full()
    }

    /// Returns the number of a holder's call site, [`MAX_SITES`] beyond the limit.
    pub(crate) fn holder(&self, site: &str) -> usize {
        self.holders.get_or_add(site, |number| number).copied().unwrap_or(MAX_SITES)
    }

    /// Takes note of settings in use.
    pub(crate) fn note(&self, ttl: Duration, stuck_after: Duration) {
        raise(&self.ttl, nanos(ttl));
        raise(&self.stuck_after, nanos(stuck_after));
    }

    /// Returns the largest lease seen, the default before the first.
    pub(crate) fn ttl(&self) -> Duration {
        match self.ttl.load(Ordering::Relaxed) {
            0 => LockOptions::default().ttl,
            ttl => Duration::from_nanos(ttl),
        }
    }

    /// Returns the largest threshold seen, the default before the first.
    pub(crate) fn stuck_after(&self) -> Duration {
        match self.stuck_after.load(Ordering::Relaxed) {
            0 => threshold(self.ttl()),
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

/// Writes only when the value grows, which it hardly ever does: a shared line that is only read
/// stays in every core's cache.
fn raise(cell: &AtomicU64, value: u64) {
    if cell.load(Ordering::Relaxed) < value {
        cell.fetch_max(value, Ordering::Relaxed);
    }
}
