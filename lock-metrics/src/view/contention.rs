//! The last contended waits, for people: which call site blocked which, on which key.

use std::time::Duration;

use lock_core::store::text::human;
use lock_core::{Holder, LockKey};
use serde_json::{Value, json};

use crate::state::Core;
use crate::state::contention::Contended;
use crate::state::{MAX_SITES, OTHER};
use crate::words::time::Moment;

/// The waits of one call site for another on one key.
pub(super) struct Blocked {
    pub(super) key: LockKey,
    pub(super) lock: String,
    pub(super) store: String,
    /// The call site that waited.
    pub(super) site: String,
    pub(super) holder: Holder,
    outcome: &'static str,
    waits: u64,
    waited: Duration,
    longest: Duration,
    last: Moment,
    /// How long ago the last of them ended.
    ago: Duration,
}

/// Returns the last contended waits, the newest first.
pub(super) fn last(core: &Core, at: Moment) -> Vec<Blocked> {
    let named = |Contended { key, family, site, holder, outcome, waits, waited, longest, last }| {
        let (lock, named) = core.nth_family(family);
        let known = if site == MAX_SITES { None } else { named.sites.nth(site) };
        Blocked {
            key,
            lock: lock.to_owned(),
            store: core.store_of(family).0.to_owned(),
            site: known.map_or(OTHER, |(site, _)| site).to_owned(),
            holder,
            outcome,
            waits,
            waited,
            longest,
            last,
            ago: at.since(last),
        }
    };
    core.contention.newest().into_iter().map(named).collect()
}

impl Blocked {
    /// Returns how often and how long, in words.
    pub(super) fn said(&self) -> String {
        let Self { waits, waited, longest, ago, outcome, .. } = self;
        let times = if *waits == 1 { "once".to_owned() } else { format!("{waits} times") };
        format!(
            "{times}, {} together, {} the longest; the last ended {} ago: {outcome}",
            human(*waited),
            human(*longest),
            human(*ago)
        )
    }

    pub(super) fn json(&self) -> Value {
        let holder = &self.holder;
        json!({
            "key": self.key.as_str(),
            "lock": self.lock,
            "store": self.store,
            "site": self.site,
            "waits": self.waits,
            "waited_seconds": self.waited.as_secs_f64(),
            "longest_seconds": self.longest.as_secs_f64(),
            "last_unix_seconds": self.last.to_unix_seconds(),
            "last_seconds_ago": self.ago.as_secs_f64(),
            "outcome": self.outcome,
            "holder": {
                "site": holder.site(),
                "host": holder.info.as_ref().map(|info| &*info.host),
                "pid": holder.info.as_ref().map(|info| info.pid),
            },
        })
    }
}
