//! What goes on now under one lock name, added up from the rows.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lock_core::LockKey;

use crate::state::MAX_SITES;
use crate::state::table::{Phase, Row};
use crate::words::labels::MODES;
use crate::words::time::Moment;

/// The number of a holder whose call site is unknown.
pub(super) const UNKNOWN: usize = MAX_SITES + 1;

/// What goes on now under one lock name.
#[derive(Default)]
pub(super) struct Live {
    /// By [`MODES`].
    pub(super) waiters: [u32; MODES.len()],
    /// Holds that lead an election.
    pub(super) leads: u32,
    pub(super) oldest_hold: Moment,
    pub(super) oldest_wait: Moment,
    pub(super) lease_expiry: Moment,
    /// The ages of all holds together.
    pub(super) held_for: Duration,
    /// By the numbers of store and call site.
    sites: BTreeMap<(usize, usize), OfSite>,
    /// By the numbers of the store and of the holder's call site, [`UNKNOWN`] for none.
    holders: BTreeMap<(usize, usize), OfHolder>,
}

/// What one call site holds in one store.
#[derive(Clone, Copy, Default)]
pub(super) struct OfSite {
    /// By [`MODES`].
    held: [u32; MODES.len()],
    /// Holds that are older than their threshold.
    pub(super) stuck: u32,
    pub(super) oldest: Moment,
}

/// The waits for one call site in one store.
#[derive(Clone, Copy, Default)]
pub(super) struct OfHolder {
    pub(super) waiters: u32,
    pub(super) oldest: Moment,
}

impl Live {
    pub(super) fn add(&mut self, row: &Row, now: Moment) {
        match &row.phase {
            Phase::Waiting { since, .. } => {
                self.waiters[row.mode()] += 1;
                self.oldest_wait = self.oldest_wait.earlier(*since);
            }
            Phase::Held(hold) if !hold.reentrant => {
                self.oldest_hold = self.oldest_hold.earlier(hold.since);
                self.lease_expiry = self.lease_expiry.earlier(hold.expiry);
                self.held_for = self.held_for.saturating_add(now.since(hold.since));
                let of_site = self.sites.entry((row.store(), row.site())).or_default();
                of_site.held[row.mode()] += 1;
                self.leads += u32::from(row.leads);
                of_site.stuck += u32::from(now >= hold.stuck_at);
                of_site.oldest = of_site.oldest.earlier(hold.since);
            }
            Phase::Held(_) => {}
        }
    }

    pub(super) fn held_in(&self, store: usize, mode: usize) -> u32 {
        self.sites.range((store, 0)..(store + 1, 0)).map(|(_, of_site)| of_site.held[mode]).sum()
    }

    pub(super) fn of_site(&self, store: usize, site: usize) -> OfSite {
        self.sites.get(&(store, site)).copied().unwrap_or_default()
    }

    pub(super) fn of_holder(&self, store: usize, holder: usize) -> Option<OfHolder> {
        self.holders.get(&(store, holder)).copied()
    }

    pub(super) fn blame(&mut self, store: usize, holder: usize, since: Moment) {
        let of_holder = self.holders.entry((store, holder)).or_default();
        of_holder.waiters += 1;
        of_holder.oldest = of_holder.oldest.earlier(since);
    }
}

/// Finds the holder for waits that have seen none: they are queued behind another waiter of this
/// process, which has seen it.
#[derive(Default)]
pub(super) struct Blame {
    seen: HashMap<LockKey, usize>,
    waits: Vec<Wait>,
}

struct Wait {
    lock: usize,
    store: usize,
    since: Moment,
    whom: Result<usize, LockKey>,
}

impl Blame {
    /// Records a wait under the lock name at this index, for this holder if the wait has seen one.
    pub(super) fn add(&mut self, lock: usize, row: &Row, since: Moment, holder: Option<usize>) {
        if let Some(holder) = holder
            && !self.seen.contains_key(&row.key)
        {
            self.seen.insert(row.key.clone(), holder);
        }
        let whom = holder.ok_or_else(|| row.key.clone());
        self.waits.push(Wait { lock, store: row.store(), since, whom });
    }

    /// Calls `charge` for every wait, with the index of its lock name, its store, its holder and its start.
    pub(super) fn charge_waits(self, mut charge: impl FnMut(usize, usize, usize, Moment)) {
        for Wait { lock, store, since, whom } in self.waits {
            let whom = whom.or_else(|key| self.seen.get(&key).copied().ok_or(())).unwrap_or(UNKNOWN);
            charge(lock, store, whom, since);
        }
    }
}
