//! Finds locks that are held for too long, off the hot path, and reports them.

use std::sync::PoisonError;

use crate::state::Core;
use crate::state::recovered::Recovered;
use crate::state::table::{Phase, Row};
use crate::words::time::Moment;

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
            // Unlock first: a subscriber may be slow, or may take a lock itself.
            drop(shard);
            for row in stuck {
                self.report_stuck(now, &row);
            }
        }
        let recovered = std::mem::take(&mut *self.recovered.lock().unwrap_or_else(PoisonError::into_inner));
        for Recovered { label, key, site, owner, token, held, outcome } in recovered {
            tracing::info!(
                lock = label.as_str(), key = key.as_str(), owner = owner.short().to_string(), token = %token, site = &*site,
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
            lock, key = row.key.as_str(), owner = hold.owner.short().to_string(), token = %hold.token, site,
            trace_id = row.trace().map(|trace| display(trace.to_hex())),
            held_seconds = now.since(hold.since).as_secs_f64(), stuck_after_seconds = hold.stuck_at.since(hold.since).as_secs_f64(),
            "lock is stuck: held for longer than its stuck_after"
        );
    }
}
