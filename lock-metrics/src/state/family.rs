//! One lock name in one store, and the call sites that take it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockEvent, LockOptions, Site};

use crate::state::uses::{Permits, Uses, raise};
use crate::state::{MAX_SITES, OTHER};
use crate::words::names::Names;
use crate::words::time::nanos;

/// The stored threshold of a hold that is never stuck: more centuries than a lock lasts.
const NEVER: u64 = u64::MAX;

/// One lock name in one store.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its number among those of all stores.
    pub(crate) number: usize,
    /// Whether it was ever requested in this store. An annotated function has a family in each store.
    taken: AtomicBool,
    /// The call sites that take it in this process.
    pub(crate) sites: Names<CallSite>,
    /// Call sites beyond the limit.
    other_site: CallSite,
    /// The time for which it was held, as last exported. The exported total must not fall.
    pub(crate) held_nanos: AtomicU64,
    /// The call sites that made callers of this process wait for it.
    pub(crate) holders: Names<usize>,
    /// The largest seen lease, 0 before the first.
    ttl: AtomicU64,
    /// Whether this process has checked one of its tokens.
    pub(crate) fenced: AtomicBool,
    pub(crate) uses: Uses,
}

/// A call site that takes a lock.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub(crate) number: usize,
    /// Whether it is a function with the attribute. Its name is then the function's name.
    pub(crate) is_function: bool,
    /// The largest seen threshold, 0 before the first.
    stuck_after: AtomicU64,
    pub(crate) permits: Permits,
}

impl Family {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            taken: AtomicBool::new(false),
            sites: Names::new(MAX_SITES),
            other_site: CallSite::new(MAX_SITES, false),
            held_nanos: AtomicU64::new(0),
            holders: Names::new(MAX_SITES),
            ttl: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            uses: Uses::default(),
        }
    }

    /// Makes room for an annotated function, so that its series exist before the first call.
    pub(crate) fn declare(&self, site: &Site) {
        self.holder(site.function());
        raise(&self.ttl, nanos(site.ttl.unwrap_or_default()));
        let stuck_after = site.stuck_after.or_else(|| site.ttl.map(threshold)).unwrap_or_default();
        let place = |number| CallSite::new(number, true);
        let place = self.sites.get_or_add(site.function(), place).unwrap_or(&self.other_site);
        raise(&place.stuck_after, nanos(stuck_after));
    }

    /// Returns the number of a call site, and records its settings. [`MAX_SITES`] beyond the limit.
    pub(crate) fn site(&self, event: &LockEvent<'_>) -> usize {
        self.take();
        let site = self.sites.get_or_add(event.site, |number| CallSite::new(number, false)).unwrap_or(&self.other_site);
        raise(&self.ttl, nanos(event.ttl));
        raise(&site.stuck_after, nanos(event.stuck_after));
        site.permits.note(event.mode);
        self.uses.note(event.purpose);
        site.number
    }

    /// Records that it is used in this store.
    pub(crate) fn take(&self) {
        if !self.is_taken() {
            self.taken.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns every call site with its name, and the site for the rest if the limit is reached.
    pub(crate) fn call_sites(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        self.sites.iter().chain(self.sites.is_full().then_some((OTHER, &self.other_site)))
    }

    /// Returns the number of a holder's call site. [`MAX_SITES`] beyond the limit.
    pub(crate) fn holder(&self, site: &str) -> usize {
        self.holders.get_or_add(site, |number| number).copied().unwrap_or(MAX_SITES)
    }

    /// Returns the largest seen lease, or the default before the first.
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

    /// Returns the largest seen threshold, or before the first the default for the family's lease. `None` for a role,
    /// which has no threshold.
    pub(crate) fn stuck_after(&self, family: &Family) -> Option<Duration> {
        match self.stuck_after.load(Ordering::Relaxed) {
            NEVER => None,
            0 => Some(threshold(family.ttl())),
            stuck_after => Some(Duration::from_nanos(stuck_after)),
        }
    }
}

/// Returns the default threshold for a lease.
fn threshold(ttl: Duration) -> Duration {
    let mut options = LockOptions::default();
    options.ttl = ttl;
    options.stuck_threshold()
}
