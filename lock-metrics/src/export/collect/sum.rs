//! Adds up the shards: the counts, the current holds and waits, and the holders that callers wait for.

use crate::export::collect::blame::Blame;
use crate::export::collect::total::Total;
use crate::state::Core;
use crate::state::counts::LATENESS_BUCKETS;
use crate::state::histogram::Histogram;
use crate::words::time::Moment;

impl Core {
    /// Adds up the shards, and finds the holders that callers wait for.
    pub(super) fn add_up(&self, now: Moment) -> (Vec<Total<'_>>, Histogram<LATENESS_BUCKETS>) {
        let mut totals = Vec::new();
        for (name, store) in self.shown_stores() {
            let shown = store.families().filter(|(label, family)| self.is_shown(label, family));
            totals.extend(shown.map(|family| Total::new((name, store), family)));
        }
        // Indexed by the number of the family. A family that was added in the meantime is in the next scrape.
        let mut places = vec![usize::MAX; totals.iter().map(|total| total.family.number + 1).max().unwrap_or(0)];
        for (at, total) in totals.iter().enumerate() {
            places[total.family.number] = at;
        }
        let place = |family: usize| places.get(family).copied().filter(|at| *at < usize::MAX);
        let mut lateness = Histogram::default();
        let mut blame = Blame::default();
        for shard in self.table.shards() {
            for (family, mode, counts) in shard.counts.iter() {
                if let Some(at) = place(family) {
                    totals[at].modes[mode].get_or_insert_default().add(counts);
                }
            }
            for row in shard.rows.values() {
                let Some(at) = place(row.family()) else { continue };
                totals[at].live.add(row, now);
                totals[at].modes[row.mode()].get_or_insert_default();
                blame.add(at, row, now, |site| totals[at].family.holder(site));
            }
            lateness.add(&shard.lateness);
        }
        for wait in self.timeouts.recent(now) {
            let Some(at) = place(wait.family) else { continue };
            blame.add_timeout(at, wait, |site| totals[at].family.holder(site));
        }
        blame.charge(&mut totals, now);
        (totals, lateness)
    }
}
