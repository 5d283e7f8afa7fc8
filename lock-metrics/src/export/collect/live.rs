//! The current holds and waits of one lock name in one store, added up from the rows.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::Holder;
use lock_core::store::types::owner::Standing;

use crate::state::MAX_SITES;
use crate::state::table::{Phase, Role, Row};
use crate::words::labels::MODES;
use crate::words::time::Moment;

/// The number of a holder whose call site is unknown.
pub(super) const UNKNOWN: usize = MAX_SITES + 1;

/// The current holds and waits of one lock name in one store.
#[derive(Default)]
pub(super) struct Live {
    /// By [`MODES`]. Candidates do not count as waiters.
    pub(super) waiters: [u32; MODES.len()],
    /// Callers that wait to lead.
    pub(super) candidates: u32,
    /// Those that were told of a leader.
    pub(super) candidates_led: u32,
    /// Holds that lead an election.
    pub(super) leads: u32,
    /// By [`MODES`].
    pub(super) held: [u32; MODES.len()],
    /// The permits of all holds together.
    pub(super) permits: u64,
    pub(super) oldest_hold: Moment,
    pub(super) oldest_wait: Moment,
    pub(super) lease_expiry: Moment,
    /// The sum of the ages of all holds.
    pub(super) held_for: Duration,
    /// By the number of the call site.
    sites: BTreeMap<usize, OfSite>,
    /// By the number of the holder's call site; [`UNKNOWN`] if there is none.
    holders: BTreeMap<usize, OfHolder>,
}

/// The holds of one call site.
#[derive(Clone, Copy, Default)]
pub(super) struct OfSite {
    pub(super) oldest: Moment,
    /// Holds that are older than their threshold.
    pub(super) stuck: u32,
    /// When the oldest of those stuck holds began.
    pub(super) oldest_stuck: Moment,
    /// Callers of this process that have waited for a stuck hold for longer than usual.
    pub(super) stuck_waiters: u32,
}

/// The waits for one call site.
#[derive(Clone, Copy, Default)]
pub(super) struct OfHolder {
    pub(super) waiters: u32,
    pub(super) oldest: Moment,
    /// The oldest hold that is waited for. One whose start is unknown counts if there is no other.
    pub(super) hold: Option<Waited>,
}

/// One hold that callers wait for.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    /// When it was granted, in seconds since 1970, by the clock of the store. `None` if that is unknown, and for a shared
    /// lock, whose members came at different times.
    pub(super) since: Option<f64>,
    /// How many callers have waited for it for longer than usual.
    pub(super) waiters: u32,
}

impl Live {
    pub(super) fn add(&mut self, row: &Row, now: Moment) {
        match &row.phase {
            Phase::Waiting { holder, .. } if row.stands() => {
                self.candidates += 1;
                // A leader of another library on the same object says who it is. Other strangers do not.
                let leads = |one: &Holder| one.owner.is_some() || one.standing() == Standing::Leased;
                let is_led = holder.as_ref().is_some_and(|leader| leader.info.is_some() && leads(leader));
                self.candidates_led += u32::from(is_led);
            }
            Phase::Waiting { since, .. } => {
                self.waiters[row.mode()] += 1;
                self.oldest_wait = self.oldest_wait.earlier(*since);
            }
            Phase::Held(hold) if !hold.reentrant => {
                self.oldest_hold = self.oldest_hold.earlier(hold.since);
                self.lease_expiry = self.lease_expiry.earlier(hold.expiry);
                self.held_for = self.held_for.saturating_add(now.since(hold.since));
                self.held[row.mode()] += 1;
                self.permits += u64::from(row.permits);
                self.leads += u32::from(row.role == Role::Leader);
                let of_site = self.sites.entry(row.site()).or_default();
                of_site.oldest = of_site.oldest.earlier(hold.since);
                if now >= hold.stuck_at {
                    of_site.stuck += 1;
                    of_site.oldest_stuck = of_site.oldest_stuck.earlier(hold.since);
                }
            }
            Phase::Held(_) => {}
        }
    }

    pub(super) fn of_site(&self, site: usize) -> OfSite {
        self.sites.get(&site).copied().unwrap_or_default()
    }

    /// Counts a caller that waits for a stuck hold of this call site.
    pub(super) fn wait_for_stuck(&mut self, site: usize) {
        self.sites.entry(site).or_default().stuck_waiters += 1;
    }

    pub(super) fn of_holder(&self, holder: usize) -> Option<OfHolder> {
        self.holders.get(&holder).copied()
    }

    pub(super) fn blame(&mut self, holder: usize, since: Moment) {
        let of_holder = self.holders.entry(holder).or_default();
        of_holder.waiters += 1;
        of_holder.oldest = of_holder.oldest.earlier(since);
    }

    /// Notes a hold that is waited for.
    pub(super) fn waited(&mut self, holder: usize, hold: Waited) {
        let of_holder = self.holders.entry(holder).or_default();
        let start = |hold: Waited| hold.since.unwrap_or(f64::INFINITY);
        match &mut of_holder.hold {
            Some(known) if known.since.is_none() && hold.since.is_none() => known.waiters += hold.waiters,
            Some(known) if start(*known) <= start(hold) => {}
            other => *other = Some(hold),
        }
    }
}
