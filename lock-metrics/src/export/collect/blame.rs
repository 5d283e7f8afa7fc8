//! Finds which call site each waiter waits for, joined by key. A call site may hold many keys, and only one of them may
//! have waiters.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use lock_core::{Holder, LockKey};

use crate::export::collect::live::{UNKNOWN, Waited};
use crate::export::collect::total::Total;
use crate::state::store::Store;
use crate::state::table::{Phase, Row};
use crate::words::time::Moment;

/// The usual wait in seconds, if it is unknown.
const USUAL: f64 = 5.0;

/// The waits of this process, with the holders they wait for. A wait without a seen holder is queued behind another
/// wait of this process, which has seen one.
#[derive(Default)]
pub(super) struct Blame {
    seen: HashMap<Place, Seen>,
    waits: Vec<Wait>,
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
    /// When it got the key, in seconds since 1970, by the clock of the store.
    since: Option<f64>,
}

struct Wait {
    total: usize,
    place: Place,
    since: Moment,
    seen: Option<Seen>,
}

impl Blame {
    /// Takes a row of one of the totals. `number` returns the number of a holder's call site.
    pub(super) fn add(&mut self, total: usize, row: &Row, now: Moment, number: impl FnOnce(&str) -> usize) {
        let place = || (Store::of(row.family()), row.key.clone());
        match &row.phase {
            Phase::Waiting { .. } if row.stands() => {}
            Phase::Waiting { since, holder } => {
                let seen = holder.as_ref().map(|holder| Seen { site: number(holder.site()), since: granted(holder) });
                if let Some(seen) = seen {
                    let known = self.seen.entry(place()).or_insert(seen);
                    known.since = known.since.or(seen.since);
                }
                self.waits.push(Wait { total, place: place(), since: *since, seen });
            }
            Phase::Held(hold) if !hold.reentrant && now >= hold.stuck_at => {
                self.stuck.entry(place()).or_insert((total, row.site()));
            }
            Phase::Held(_) => {}
        }
    }

    /// Charges every wait to the call site that it waits for.
    pub(super) fn charge(self, totals: &mut [Total<'_>], now: Moment) {
        if self.waits.is_empty() {
            return;
        }
        let usual: Vec<f64> = totals.iter().map(|total| total.usual_wait().unwrap_or(USUAL)).collect();
        let mut holds: HashMap<(usize, usize, Place), Waited> = HashMap::new();
        for Wait { total, place, since, seen } in self.waits {
            let seen = seen.or_else(|| self.seen.get(&place).copied());
            let site = seen.map_or(UNKNOWN, |seen| seen.site);
            totals[total].live.blame(site, since);
            let is_long = now.since(since).as_secs_f64() > usual[total];
            if is_long && let Some((holds, site)) = self.stuck.get(&place) {
                totals[*holds].live.wait_for_stuck(*site);
            }
            if let Some(since) = seen.and_then(|seen| seen.since) {
                let hold = holds.entry((total, site, place)).or_insert(Waited { since, waiters: 0 });
                hold.since = hold.since.min(since);
                hold.waiters += u32::from(is_long);
            }
        }
        for ((total, site, _), hold) in holds {
            totals[total].live.waited(site, hold);
        }
    }
}

/// Returns when a holder got its lock, by the clock of the store.
fn granted(holder: &Holder) -> Option<f64> {
    let since = holder.since.or_else(|| holder.token?.drawn_at())?;
    Some(since.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64())
}
