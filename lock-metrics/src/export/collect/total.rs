//! All data of one lock name in one store, for the sums over the shards.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::export::collect::live::Live;
use crate::state::counts::Counts;
use crate::state::family::Family;
use crate::state::store::Store;
use crate::words::labels;
use crate::words::time::nanos;

/// One lock name in one store, with its sums.
pub(super) struct Total<'a> {
    pub(super) name: &'a str,
    pub(super) store: &'a str,
    pub(super) at: &'a Store,
    pub(super) family: &'a Family,
    /// By [`labels::MODES`]: the first mode, and the modes that were requested.
    pub(super) modes: [Option<Counts>; labels::MODES.len()],
    pub(super) live: Live,
}

/// The index and the name of a mode, and its sums.
pub(super) type OfMode<'a> = (usize, &'static str, &'a Counts);

impl<'a> Total<'a> {
    pub(super) fn new((store, at): (&'a str, &'a Store), (name, family): (&'a str, &'a Family)) -> Self {
        Self { name, store, at, family, modes: [Some(Counts::default()), None, None, None], live: Live::default() }
    }

    /// Returns the sums of each mode that is shown, with its index and its name.
    pub(super) fn modes(&self) -> impl Iterator<Item = OfMode<'_>> {
        let all = labels::MODES.into_iter().zip(&self.modes).enumerate();
        all.filter_map(|(mode, (name, counts))| Some((mode, name, counts.as_ref()?)))
    }

    /// Returns whether permits of it were requested.
    pub(super) fn has_permits(&self) -> bool {
        self.modes[labels::PERMIT].is_some()
    }

    /// Returns the sums of all modes.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.modes().for_each(|(_, _, counts)| sum.add(counts));
        sum
    }

    /// Returns the median wait over all modes. `None` if too few waits are known.
    pub(super) fn usual_wait(&self) -> Option<f64> {
        self.counts().median_wait()
    }

    /// Returns how long the lock was held, including current holds.
    pub(super) fn held_seconds(&self) -> f64 {
        let holds = self.modes().flat_map(|(_, _, counts)| counts.holds.buckets());
        let ended: f64 = holds.map(|bucket| bucket.sum).sum();
        let total = Duration::from_secs_f64(ended.max(0.0)).saturating_add(self.live.held_for);
        // The lock measures a hold again when it ends, with a slightly different result. A total must not fall because
        // of that.
        let told = self.family.held_nanos.fetch_max(nanos(total), Ordering::Relaxed);
        Duration::from_nanos(told.max(nanos(total))).as_secs_f64()
    }
}
