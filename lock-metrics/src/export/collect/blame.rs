//! Finds which call site each waiter waits for, joined by key. A call site may hold many keys, and only one of them may
//! have waiters.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use lock_core::{Holder, LockKey};

use crate::export::collect::live::{UNKNOWN, Waited};
use crate::export::collect::total::Total;
use crate::state::store::Store;
use crate::state::table::{Phase, Row};
use crate::state::timeouts::TimedOut;
use crate::words::labels::site_of;
use crate::words::time::Moment;

/// A wait that may take minutes is long after this many seconds, unless waits for its lock usually take longer.
const LONG: f64 = 5.0;

/// The waits of this process, with the holders they wait for. A wait without a seen holder is queued behind another
/// wait of this process, which has seen one.
#[derive(Default)]
pub(super) struct Blame {
    seen: HashMap<Place, Seen>,
    waits: Vec<Wait>,
    /// Waits that timed out a moment ago: the total, the key, and its holder at that time.
    timeouts: Vec<(usize, Place, Seen)>,
    /// Which total and which call site holds a key for too long.
    stuck: HashMap<Place, (usize, usize)>,
}

/// A key in a store, given by the store's number. The same key in two stores means two locks.
type Place = (usize, LockKey);

/// The holder of a key.
#[derive(Clone, Copy)]
struct Seen {
    /// The number of its call site.
    site: usize,
    /// When it got the key, in seconds since 1970, by the clock of the store. Unknown for the members of a shared lock.
    since: Option<f64>,
}

struct Wait {
    total: usize,
    place: Place,
    since: Moment,
    limit: Option<Duration>,
    seen: Option<Seen>,
}

impl Blame {
    /// Takes a row of one of the totals. `number` returns the number of a holder's call site.
    pub(super) fn add(&mut self, total: usize, row: &Row, now: Moment, number: impl FnOnce(&str) -> usize) {
        let place = || (Store::of(row.family()), row.key.clone());
        match &row.phase {
            Phase::Waiting { .. } if row.stands() => {}
            Phase::Waiting { since, limit, holder } => {
                let seen = holder.as_ref().map(|holder| Seen::of(holder, number));
                if let Some(seen) = seen {
                    let known = self.seen.entry(place()).or_insert(seen);
                    known.since = known.since.or(seen.since);
                }
                self.waits.push(Wait { total, place: place(), since: *since, limit: *limit, seen });
            }
            Phase::Held(hold) if !hold.reentrant && now >= hold.stuck_at => {
                self.stuck.entry(place()).or_insert((total, row.site()));
            }
            Phase::Held(_) => {}
        }
    }

    /// Takes a wait of one of the totals that timed out a moment ago.
    pub(super) fn add_timeout(&mut self, total: usize, wait: TimedOut, number: impl FnOnce(&str) -> usize) {
        let seen = Seen::of(&wait.holder, number);
        self.timeouts.push((total, (Store::of(wait.family), wait.key), seen));
    }

    /// Charges every wait to the call site that it waits for.
    pub(super) fn charge(self, totals: &mut [Total<'_>], now: Moment) {
        if self.waits.is_empty() && self.timeouts.is_empty() {
            return;
        }
        let usual: Vec<Option<f64>> = totals.iter().map(Total::usual_wait).collect();
        let mut holds: HashMap<(usize, usize, Place), Waited> = HashMap::new();
        for Wait { total, place, since, limit, seen } in self.waits {
            let seen = seen.or_else(|| self.seen.get(&place).copied());
            let site = seen.map_or(UNKNOWN, |seen| seen.site);
            totals[total].live.blame(site, since);
            let is_long = now.since(since).as_secs_f64() > long_after(limit, usual[total]);
            if is_long && let Some((holds, site)) = self.stuck.get(&place) {
                totals[*holds].live.wait_for_stuck(*site);
            }
            let since = seen.and_then(|seen| seen.since);
            let hold = holds.entry((total, site, place)).or_insert(Waited { since, waiters: 0 });
            hold.since = hold.since.into_iter().chain(since).reduce(f64::min);
            hold.waiters += u32::from(is_long);
        }
        for (total, place, seen) in self.timeouts {
            // The key has another holder by now.
            if self.seen.get(&place).is_some_and(|now| now.since != seen.since) {
                continue;
            }
            if let Some((holds, site)) = self.stuck.get(&place) {
                totals[*holds].live.wait_for_stuck(*site);
            }
            let hold = holds.entry((total, seen.site, place)).or_insert(Waited { since: seen.since, waiters: 0 });
            hold.waiters += 1;
        }
        for ((total, site, _), hold) in holds {
            totals[total].live.waited(site, hold);
        }
    }
}

impl Seen {
    fn of(holder: &Holder, number: impl FnOnce(&str) -> usize) -> Self {
        Self { site: number(site_of(holder.site())), since: granted(holder) }
    }
}

/// Returns after how many seconds a wait is long: after the usual wait, as far as its own limit allows. A wait that ends
/// at its limit must be long before that.
fn long_after(limit: Option<Duration>, usual: Option<f64>) -> f64 {
    let most = limit.map_or(f64::INFINITY, |limit| limit.as_secs_f64() / 2.0);
    let least = most.min(LONG);
    usual.unwrap_or(least).clamp(least, most)
}

/// Returns when a holder got its lock, by the clock of the store. A shared lock began with its first member, which may
/// have left long ago.
fn granted(holder: &Holder) -> Option<f64> {
    if holder.is_shared() {
        return None;
    }
    let since = holder.since.or_else(|| holder.token?.drawn_at())?;
    Some(since.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64())
}
