//! Looks for locks that are held for too long, off the hot path, and reports them.

use std::sync::PoisonError;
use std::time::Duration;

use lock_core::{FencingToken, LockEvent, LockKey, LockLabel, OwnerId};

use crate::state::{Core, MAX_LOCKS, MAX_SITES, OTHER};
use crate::table::{Hold, Phase, Row};
use crate::time::Moment;

/// A stuck hold that ended.
#[derive(Debug)]
pub(crate) struct Recovered {
    label: LockLabel,
    key: LockKey,
    site: Box<str>,
    owner: OwnerId,
    token: FencingToken,
    held: Duration,
    outcome: &'static str,
}

impl Recovered {
    pub(crate) fn new(event: &LockEvent<'_>, hold: &Hold, held: Duration, outcome: &'static str) -> Self {
        Self {
            label: event.label.clone(),
            key: event.key.clone(),
            site: event.site.into(),
            owner: hold.owner,
            token: hold.token,
            held,
            outcome,
        }
    }
}

impl Core {
    /// Reports, once each, holds that became stuck and stuck holds that ended.
    pub(crate) fn sample(&self, now: Moment) {
        for mut shard in self.table.shards() {
            if shard.next_stuck == Moment::NEVER || now < shard.next_stuck {
                continue;
            }
            let (mut stuck, mut next_stuck) = (Vec::new(), Moment::NEVER);
            for row in shard.rows.values_mut() {
                if let Phase::Held(hold) = &mut row.phase
                    && !hold.reported
                    && !hold.reentrant
                {
                    if now >= hold.stuck_at {
                        hold.reported = true;
                        stuck.push(row.clone());
                    } else {
                        next_stuck = next_stuck.earlier(hold.stuck_at);
                    }
                }
            }
            shard.next_stuck = next_stuck;
            // A subscriber may be slow, or may take a lock itself.
            drop(shard);
            for row in stuck {
                self.report_stuck(now, &row);
            }
        }
        let recovered = std::mem::take(&mut *self.recovered.lock().unwrap_or_else(PoisonError::into_inner));
        for Recovered { label, key, site, owner, token, held, outcome } in recovered {
            tracing::info!(
                lock = label.as_str(), key = key.as_str(), ?owner, token = %token, site = &*site,
                held_seconds = held.as_secs_f64(), outcome,
                "lock is no longer stuck"
            );
        }
        self.ran(now);
    }

    fn report_stuck(&self, now: Moment, row: &Row) {
        let Phase::Held(hold) = &row.phase else { return };
        let (lock, site) = self.names(row);
        tracing::warn!(
            lock, key = row.key.as_str(), owner = ?hold.owner, token = %hold.token, site,
            held_seconds = now.since(hold.since).as_secs_f64(), stuck_after_seconds = hold.stuck_at.since(hold.since).as_secs_f64(),
            "lock is stuck: held for longer than its stuck_after"
        );
    }

    /// Returns the lock name and the call site of a row.
    pub(crate) fn names(&self, row: &Row) -> (&str, &str) {
        let (lock, family) = match row.family() {
            MAX_LOCKS => (OTHER, &self.other),
            number => self.families.nth(number).unwrap_or((OTHER, &self.other)),
        };
        let site = match row.site() {
            MAX_SITES => OTHER,
            number => family.sites.nth(number).map_or(OTHER, |(site, _)| site),
        };
        (lock, site)
    }
}
