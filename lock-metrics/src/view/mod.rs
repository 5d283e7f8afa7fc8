//! The live view: the current holds and waits of this process, as a page and as JSON.

mod contention;
mod html;
mod json;
pub(crate) mod live;
mod roles;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lock_core::{Holder, LockKey};

use crate::state::Core;
use crate::state::store::Store;
use crate::state::table::{Phase, Row};
use crate::view::contention::Blocked;
use crate::view::live::{LiveLock, LiveState};
use crate::view::roles::Roles;
use crate::words::time::Moment;

pub use html::LIVE_VIEW_CSP;

/// The most rows: more than a person reads, but few enough for a phone and for an immediate response.
const MAX_SHOWN: usize = 500;

/// The worst rows of this process.
struct View {
    at: Moment,
    rows: Vec<Shown>,
    totals: Totals,
    roles: Roles,
    /// The last contended waits that have ended, the newest first.
    contention: Vec<Blocked>,
    /// The age of this process's newest scan of a fleet, if it makes scans.
    scanned: Option<Duration>,
}

/// The totals, which include rows that are not shown.
#[derive(Default)]
struct Totals {
    stuck: usize,
    held: usize,
    waiting: usize,
    /// Callers that wait to lead.
    candidates: usize,
}

/// One row.
struct Shown {
    live: LiveLock,
    /// The address of its trace.
    trace_link: Option<String>,
    /// How many acquires of this process wait for this key, including candidates.
    waiters: usize,
    /// How many processes of the fleet are in the queue for it, if this process knows that.
    fleet_waiters: Option<u64>,
}

/// How bad the state of one key is. The worst comes first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Hurt {
    stuck: bool,
    waiters: usize,
    oldest: Duration,
}

/// A key that callers wait for.
#[derive(Default)]
struct Wanted {
    hurt: Hurt,
    /// The candidates for a role. They do not count as a problem.
    candidates: usize,
    /// The holder that one of the waiters has seen. Waiters queued behind it have not seen one.
    holder: Option<Box<Holder>>,
}

/// The order of rows. The waiters of a key are below its holder.
type Place = (Reverse<Hurt>, LockKey, usize, bool, Reverse<Duration>, u64);

/// A key in a store, given by the store's number.
type Lock = (usize, LockKey);

pub(crate) fn html(core: &Arc<Core>) -> String {
    html::page(&View::new(core))
}

pub(crate) fn json(core: &Arc<Core>) -> String {
    json::document(&View::new(core)).to_string()
}

impl View {
    /// Reads the rows three times, shard by shard, and copies only those that are shown.
    fn new(core: &Arc<Core>) -> Self {
        let at = Moment::now();
        let mut totals = Totals::default();
        let wanted = wanted(core, at, &mut totals);
        let mut worst: BTreeMap<Place, Row> = BTreeMap::new();
        for shard in core.table.shards() {
            for (attempt, row) in &shard.rows {
                let hurt = wanted.get(&lock(row)).map_or_else(|| hurt(row, at), |wanted| wanted.hurt);
                // Most rows are not worse than those already found, so they are not copied.
                let last = worst.last_key_value().filter(|_| worst.len() == MAX_SHOWN);
                if last.is_some_and(|((Reverse(least), ..), _)| hurt < *least) {
                    continue;
                }
                let is_waiting = matches!(row.phase, Phase::Waiting { .. });
                let (store, key) = lock(row);
                let place = (Reverse(hurt), key, store, is_waiting, Reverse(age(row, at)), *attempt);
                worst.insert(place, row.clone());
                if worst.len() > MAX_SHOWN {
                    worst.pop_last();
                }
            }
        }
        let fleet = core.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = |row: Row| {
            let wanted = wanted.get(&lock(&row));
            let mut live = LiveLock::new(core, at, row);
            if let LiveState::Waiting { waits_for: waits_for @ None } = &mut live.state {
                *waits_for = wanted.and_then(|wanted| wanted.holder.as_deref().cloned());
            }
            let trace_link = live.trace_id.as_ref().and_then(|id| core.settings.traces.link(id));
            let waiters = wanted.map_or(0, |wanted| wanted.hurt.waiters + wanted.candidates);
            let fleet_waiters = fleet.get(&live.store).and_then(|found| found.queue(&live.key));
            Shown { trace_link, waiters, fleet_waiters, live }
        };
        let (roles, contention) = (Roles::new(core, at), contention::last(core, at));
        let scanned = fleet.values().map(|found| found.last_success).filter(|last| *last != Moment::NEVER).max();
        let scanned = scanned.map(|last| at.since(last));
        Self { at, rows: worst.into_values().map(shown).collect(), totals, roles, contention, scanned }
    }

    /// Returns how many rows exist beyond those shown.
    fn hidden(&self) -> usize {
        (self.totals.held + self.totals.waiting + self.totals.candidates).saturating_sub(self.rows.len())
    }
}

/// Returns the keys that callers wait for, and counts all rows.
fn wanted(core: &Core, at: Moment, totals: &mut Totals) -> HashMap<Lock, Wanted> {
    let mut wanted: HashMap<Lock, Wanted> = HashMap::new();
    for shard in core.table.shards() {
        for row in shard.rows.values() {
            let Phase::Waiting { holder, .. } = &row.phase else {
                totals.held += 1;
                totals.stuck += usize::from(hurt(row, at).stuck);
                continue;
            };
            let key = wanted.entry(lock(row)).or_default();
            if row.stands() {
                totals.candidates += 1;
                key.candidates += 1;
            } else {
                totals.waiting += 1;
                key.hurt.waiters += 1;
                key.hurt.oldest = key.hurt.oldest.max(age(row, at));
            }
            if key.holder.is_none() {
                key.holder.clone_from(holder);
            }
        }
    }
    if !wanted.is_empty() {
        for shard in core.table.shards() {
            for row in shard.rows.values().filter(|row| matches!(row.phase, Phase::Held(_))) {
                if let Some(key) = wanted.get_mut(&lock(row)) {
                    let held = hurt(row, at);
                    key.hurt.stuck |= held.stuck;
                    key.hurt.oldest = key.hurt.oldest.max(held.oldest);
                }
            }
        }
    }
    wanted
}

/// Returns the lock that a row holds or waits for.
fn lock(row: &Row) -> Lock {
    (Store::of(row.family()), row.key.clone())
}

/// Returns how bad a row is by itself.
fn hurt(row: &Row, at: Moment) -> Hurt {
    let stuck = matches!(&row.phase, Phase::Held(hold) if at >= hold.stuck_at);
    Hurt { stuck, waiters: 0, oldest: age(row, at) }
}

fn age(row: &Row, at: Moment) -> Duration {
    match &row.phase {
        Phase::Waiting { since, .. } => at.since(*since),
        Phase::Held(hold) => at.since(hold.since),
    }
}

impl LiveLock {
    /// Returns the state in one lower-case word.
    fn state(&self) -> &'static str {
        match self.state {
            LiveState::Waiting { .. } if self.role == Some("candidate") => "stands",
            LiveState::Waiting { .. } => "waiting",
            LiveState::Held { stuck: true, .. } => "stuck",
            LiveState::Held { .. } if self.role == Some("leader") => "leads",
            LiveState::Held { .. } => "held",
        }
    }
}

/// Returns the first digits of a holder's identity, as [`LiveState::Held`] shows them.
fn short_owner(holder: &Holder) -> Option<String> {
    holder.owner.map(|owner| owner.to_hex().chars().take(4).collect())
}

/// Returns the name of this host, if the system provides it.
fn host() -> Option<String> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}
