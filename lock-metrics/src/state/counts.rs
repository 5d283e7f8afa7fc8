//! The counts of one lock name in one shard.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use crate::catalog::{self, Metric};
use crate::state::histogram::Histogram;
use crate::words::labels;
use crate::words::time::Moment;
use crate::words::trace::{Exemplar, TraceId};

/// The number of buckets of a histogram, including its last one.
const fn buckets(metric: &Metric) -> usize {
    metric.buckets().len() + 1
}

pub(crate) const WAIT_BUCKETS: usize = buckets(&catalog::WAIT);
pub(crate) const HOLD_BUCKETS: usize = buckets(&catalog::HOLD);
pub(crate) const BLOCKED_BUCKETS: usize = buckets(&catalog::BLOCKED);
pub(crate) const RATIO_BUCKETS: usize = buckets(&catalog::LEASE_RATIO);
pub(crate) const LATENESS_BUCKETS: usize = buckets(&catalog::RENEWAL_LATENESS);
pub(crate) const CONFIRM_BUCKETS: usize = buckets(&catalog::CONFIRM);
pub(crate) const COMMAND_BUCKETS: usize = buckets(&catalog::COMMAND);

/// How many waits are needed before their median counts as usual.
const ENOUGH: u64 = 20;

/// Plain numbers, because code that writes them already holds the lock of their shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By [`labels::ACQUIRE_OUTCOMES`].
    pub(crate) acquisitions: Counter<{ labels::ACQUIRE_OUTCOMES.len() }>,
    /// By [`labels::PATHS`].
    pub(crate) grants: Counter<{ labels::PATHS.len() }>,
    /// By [`labels::RENEWAL_OUTCOMES`].
    pub(crate) renewals: Counter<{ labels::RENEWAL_OUTCOMES.len() }>,
    /// By [`labels::LOSS_REASONS`].
    pub(crate) lost: Counter<{ labels::LOSS_REASONS.len() }>,
    /// By [`labels::RELEASE_OUTCOMES`].
    pub(crate) releases: Counter<{ labels::RELEASE_OUTCOMES.len() }>,
    pub(crate) unlocked_runs: u64,
    pub(crate) fencing_regressions: u64,
    pub(crate) order_inversions: u64,
    /// By [`labels::WAIT_OUTCOMES`].
    pub(crate) waits: [Histogram<WAIT_BUCKETS>; 2],
    pub(crate) holds: Histogram<HOLD_BUCKETS>,
    pub(crate) lease_ratio: Histogram<RATIO_BUCKETS>,
    /// By the number of the holder's site. It grows when a site first makes a caller wait.
    pub(crate) blocked: Vec<Histogram<BLOCKED_BUCKETS>>,
    /// By the outcome of the wait and by bucket: the last sample whose trace is known.
    exemplars: BTreeMap<(usize, usize), Exemplar>,
}

impl Counts {
    /// Returns the waits charged to a holder's site.
    pub(crate) fn blocked_by(&mut self, site: usize) -> &mut Histogram<BLOCKED_BUCKETS> {
        if self.blocked.len() <= site {
            self.blocked.resize_with(site + 1, Histogram::default);
        }
        &mut self.blocked[site]
    }

    /// Counts a wait by the index of its outcome.
    pub(crate) fn waited(&mut self, outcome: usize, time: Duration, trace: Option<TraceId>) {
        let bucket = self.waits[outcome].record_duration(catalog::WAIT.buckets(), time);
        if let Some(trace) = trace {
            let exemplar = Exemplar { trace, value: time.as_secs_f64(), at: Moment::now() };
            self.exemplars.insert((outcome, bucket), exemplar);
        }
    }

    /// Returns the median of the waits that got the lock, if enough of them are known.
    pub(crate) fn median_wait(&self) -> Option<f64> {
        let buckets = self.waits[0].buckets();
        let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        let mut below = 0;
        let middle = buckets.iter().position(|bucket| {
            below += bucket.count;
            below * 2 >= all
        });
        let bound = middle.and_then(|at| catalog::WAIT.buckets().get(at)).copied().unwrap_or(f64::INFINITY);
        (all >= ENOUGH).then_some(bound)
    }

    pub(crate) fn exemplar(&self, outcome: usize, bucket: usize) -> Option<Exemplar> {
        self.exemplars.get(&(outcome, bucket)).copied()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.acquisitions += &other.acquisitions;
        self.grants += &other.grants;
        self.renewals += &other.renewals;
        self.lost += &other.lost;
        self.releases += &other.releases;
        self.unlocked_runs += other.unlocked_runs;
        self.fencing_regressions += other.fencing_regressions;
        self.order_inversions += other.order_inversions;
        for (mine, theirs) in self.waits.iter_mut().zip(&other.waits) {
            mine.add(theirs);
        }
        self.holds.add(&other.holds);
        self.lease_ratio.add(&other.lease_ratio);
        for (site, theirs) in other.blocked.iter().enumerate() {
            self.blocked_by(site).add(theirs);
        }
        for (place, theirs) in &other.exemplars {
            if self.exemplars.get(place).is_none_or(|mine| mine.at < theirs.at) {
                self.exemplars.insert(*place, *theirs);
            }
        }
    }
}

/// One number for each value of a closed set of label values.
#[derive(Clone, Debug)]
pub(crate) struct Counter<const N: usize>([u64; N]);

impl<const N: usize> Default for Counter<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Counter<N> {
    /// Counts the value at this index in its set; see [`labels::place`].
    pub(crate) fn count(&mut self, place: usize) {
        if let Some(count) = self.0.get_mut(place) {
            *count += 1;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }
}

impl<const N: usize> AddAssign<&Self> for Counter<N> {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }
}
