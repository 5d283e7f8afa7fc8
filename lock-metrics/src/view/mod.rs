//! The live view: what this process holds and waits for, as a page and as JSON.

mod html;
mod json;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Holder, LockKey};

use crate::live::{LiveLock, LiveLocks, LiveState};
use crate::state::Core;
use crate::time::UnixTime;

pub use html::LIVE_VIEW_CSP;

/// The most rows of the page: more than anybody reads, few enough for a phone.
const MAX_SHOWN: usize = 500;
/// The most rows of the JSON.
const MAX_LISTED: usize = 10_000;

/// Everything going on in this process, what hurts most first.
struct View {
    at: UnixTime,
    rows: Vec<Shown>,
    totals: Totals,
}

/// How much is going on, also beyond the rows that are shown.
#[derive(Default)]
struct Totals {
    stuck: usize,
    held: usize,
    waiting: usize,
}

/// One row.
struct Shown {
    live: LiveLock,
    /// How many acquires of this process wait for this key.
    waiters: usize,
}

/// How much one key hurts; the greatest comes first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Hurt {
    stuck: bool,
    waiters: usize,
    oldest: Duration,
}

pub(crate) fn html(core: &Arc<Core>) -> String {
    html::page(&View::new(core, MAX_SHOWN))
}

pub(crate) fn json(core: &Arc<Core>) -> String {
    json::document(&View::new(core, MAX_LISTED)).to_string()
}

impl View {
    fn new(core: &Arc<Core>, limit: usize) -> Self {
        let at = UnixTime::now();
        let mut live: Vec<LiveLock> = LiveLocks::new(Arc::clone(core)).collect();
        name_holders(&mut live);
        let mut totals = Totals::default();
        let mut hurts: HashMap<LockKey, Hurt> = HashMap::new();
        for row in &live {
            let hurt = hurts.entry(row.key.clone()).or_default();
            match row.state() {
                "waiting" => {
                    hurt.waiters += 1;
                    totals.waiting += 1;
                }
                state => {
                    hurt.stuck |= state == "stuck";
                    totals.stuck += usize::from(state == "stuck");
                    totals.held += 1;
                }
            }
            hurt.oldest = hurt.oldest.max(row.age);
        }
        let hurt = |row: &LiveLock| hurts.get(&row.key).copied().unwrap_or_default();
        let mut rows: Vec<Shown> = live.into_iter().map(|live| Shown { waiters: hurt(&live).waiters, live }).collect();
        // A key's waiters stand below its holder.
        rows.sort_by_cached_key(|Shown { live, .. }| {
            (Reverse(hurt(live)), live.key.clone(), live.state() == "waiting", Reverse(live.age))
        });
        rows.truncate(limit);
        Self { at, rows, totals }
    }

    /// How many rows there are beyond those shown.
    fn hidden(&self) -> usize {
        self.totals.held + self.totals.waiting - self.rows.len()
    }
}

/// Names the holder to those who have not seen it: they stand behind another waiter of this process,
/// who has.
fn name_holders(live: &mut [LiveLock]) {
    let seen: HashMap<LockKey, Holder> = live
        .iter()
        .filter_map(|row| match &row.state {
            LiveState::Waiting { waits_for: Some(holder) } => Some((row.key.clone(), holder.clone())),
            _ => None,
        })
        .collect();
    for row in live {
        if let LiveState::Waiting { waits_for: waits_for @ None } = &mut row.state {
            *waits_for = seen.get(&row.key).cloned();
        }
    }
}

impl LiveLock {
    /// Returns the state in one lower-case word.
    fn state(&self) -> &'static str {
        match self.state {
            LiveState::Waiting { .. } => "waiting",
            LiveState::Held { stuck: true, .. } => "stuck",
            LiveState::Held { .. } => "held",
        }
    }
}

/// Returns the first digits of a holder's identity, as [`LiveState::Held`] shows them.
fn short_owner(holder: &Holder) -> Option<String> {
    holder.owner.map(|owner| owner.to_hex().chars().take(4).collect())
}

/// Returns the name of this host, where the system tells it.
fn host() -> Option<String> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}
