//! Adds up the shards and passes every series to a sink.

mod blame;
mod fleet;
mod live;
mod nodes;
mod sum;
mod total;
mod uses;

use std::sync::atomic::Ordering;

use crate::catalog;
use crate::export::collect::total::{OfMode, Total};
use crate::export::sink::Sink;
use crate::state::counts::Counts;
use crate::state::histogram::Histogram;
use crate::state::{Core, MAX_SITES, OTHER};
use crate::words::labels;
use crate::words::time::Moment;

impl Core {
    /// Passes every series to `sink`.
    pub(crate) fn collect(&self, sink: &mut impl Sink) {
        let now = Moment::now();
        let (totals, lateness) = self.add_up(now);
        locks(sink, &totals);
        for (what, total) in labels::OVERFLOWS.iter().zip(&self.overflows) {
            sink.counter(&catalog::LABEL_OVERFLOW, &[what], total.load(Ordering::Relaxed));
        }
        sink.counter(&catalog::FENCING_REJECTIONS, &[], self.fencing_rejections.load(Ordering::Relaxed));
        for (role, total) in labels::DEADLOCK_ROLES.iter().zip(&self.deadlocks) {
            sink.counter(&catalog::DEADLOCKS, &[role], total.load(Ordering::Relaxed));
        }
        sink.histogram(&catalog::RENEWAL_LATENESS, &[], lateness.buckets());
        for (held, wanted) in self.edges.all() {
            sink.gauge(&catalog::ORDER_EDGE, &[&held, &wanted], 1.0);
        }
        self.nodes_to(sink);
        self.fleet_to(sink);
        sink.gauge(&catalog::NOW, &[], now.to_unix_seconds());
        for (store, at) in self.shown_stores().filter(|(name, _)| !name.is_empty()) {
            sink.gauge(&catalog::STORE_NOW, &[store], now.to_store_seconds(&at.clock));
        }
        self.stores_to(sink);
        sink.gauge(&catalog::START, &[], self.start.to_unix_seconds());
        sink.gauge(&catalog::SAMPLER_LAST_RUN, &[], self.last_run().to_unix_seconds());
        sink.gauge(&catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
    }
}

/// Exports the series that have a lock name and a store.
fn locks(sink: &mut impl Sink, totals: &[Total<'_>]) {
    by_mode(sink, totals);
    let sums: Vec<(&Total<'_>, Counts)> = totals.iter().map(|total| (total, total.counts())).collect();
    let mut counters = |metric, values: &[&str], get: &dyn Fn(&Counts) -> Vec<u64>| {
        for (total, counts) in &sums {
            for (value, count) in values.iter().zip(get(counts)) {
                sink.counter(metric, &[total.name, total.store, value], count);
            }
        }
    };
    counters(&catalog::GRANTS, &labels::PATHS, &|counts| counts.grants.iter().collect());
    counters(&catalog::RENEWALS, &labels::RENEWAL_OUTCOMES, &|counts| counts.renewals.iter().collect());
    counters(&catalog::LOST, &labels::LOSS_REASONS, &|counts| counts.lost.iter().collect());
    counters(&catalog::RELEASES, &labels::RELEASE_OUTCOMES, &|counts| counts.releases.iter().collect());
    let mut counter = |metric, get: &dyn Fn(&Counts) -> u64| {
        for (total, counts) in &sums {
            sink.counter(metric, &[total.name, total.store], get(counts));
        }
    };
    counter(&catalog::UNLOCKED_RUNS, &|counts| counts.unlocked_runs);
    counter(&catalog::FENCING_REGRESSIONS, &|counts| counts.fencing_regressions);
    counter(&catalog::ORDER_INVERSIONS, &|counts| counts.order_inversions);
    for total in totals {
        sink.seconds(&catalog::HELD_SECONDS, &[total.name, total.store], total.held_seconds());
    }
    for (total, counts) in &sums {
        sink.histogram(&catalog::LEASE_RATIO, &[total.name, total.store], counts.lease_ratio.buckets());
    }
    for (total, counts) in &sums {
        blocked(sink, total, counts);
    }
    let mut gauges = |metric, get: &dyn Fn(&Total<'_>) -> f64| {
        for total in totals {
            sink.gauge(metric, &[total.name, total.store], get(total));
        }
    };
    gauges(&catalog::OLDEST_HOLD, &|total| total.live.oldest_hold.to_unix_seconds());
    gauges(&catalog::OLDEST_WAIT, &|total| total.live.oldest_wait.to_unix_seconds());
    gauges(&catalog::LEASE_EXPIRY, &|total| total.live.lease_expiry.to_unix_seconds());
    gauges(&catalog::TTL, &|total| total.family.ttl().as_secs_f64());
    for total in totals {
        for (site, place) in total.family.call_sites() {
            if let Some(age) = place.stuck_after(total.family) {
                sink.gauge(&catalog::STUCK_AFTER, &[total.name, total.store, site], age.as_secs_f64());
            }
        }
    }
    for total in totals {
        for (site, place) in total.family.sites.iter() {
            let function = if place.is_function { site } else { "" };
            sink.gauge(&catalog::SITE_INFO, &[total.name, total.store, site, function], 1.0);
        }
    }
    by_site(sink, totals);
    by_holder(sink, totals);
    uses::uses(sink, totals);
}

/// Exports the series that have a mode.
fn by_mode(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let each = |tell: &mut dyn FnMut(&Total<'_>, OfMode<'_>)| {
        for total in totals {
            total.modes().for_each(|mode| tell(total, mode));
        }
    };
    each(&mut |total, (_, mode, counts)| {
        for (outcome, count) in labels::ACQUIRE_OUTCOMES.iter().zip(counts.acquisitions.iter()) {
            sink.counter(&catalog::ACQUISITIONS, &[total.name, total.store, outcome, mode], count);
        }
    });
    each(&mut |total, (_, mode, counts)| {
        for (number, outcome) in labels::WAIT_OUTCOMES.iter().enumerate() {
            let exemplar = |bucket| counts.exemplar(number, bucket);
            let (labels, waits) = ([total.name, total.store, outcome, mode], counts.waits[number].buckets());
            sink.traced(&catalog::WAIT, &labels, waits, &exemplar);
        }
    });
    each(&mut |total, (_, mode, counts)| {
        sink.histogram(&catalog::HOLD, &[total.name, total.store, mode], counts.holds.buckets());
    });
    each(&mut |total, (at, mode, _)| {
        sink.gauge(&catalog::WAITERS, &[total.name, total.store, mode], f64::from(total.live.waiters[at]));
    });
    each(&mut |total, (at, mode, _)| {
        sink.gauge(&catalog::HELD, &[total.name, total.store, mode], f64::from(total.live.held[at]));
    });
}

/// Exports the holds of every known call site: how many, since when, and how many are stuck. Known call sites stay in
/// the output at 0, so that an alert that names one ends.
fn by_site(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let mut each = |metric, get: &dyn Fn(live::OfSite) -> f64| {
        for total in totals {
            for (site, place) in total.family.call_sites() {
                sink.gauge(metric, &[total.name, total.store, site], get(total.live.of_site(place.number)));
            }
        }
    };
    each(&catalog::SITE_OLDEST_HOLD, &|site| site.oldest.to_unix_seconds());
    each(&catalog::STUCK, &|site| f64::from(site.stuck));
    each(&catalog::STUCK_OLDEST, &|site| site.oldest_stuck.to_unix_seconds());
    each(&catalog::STUCK_WAITERS, &|site| f64::from(site.stuck_waiters));
}

/// Exports the waits for every known holder, and for unknown holders if callers wait for them.
fn by_holder(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let mut each = |metric, get: &dyn Fn(live::OfHolder) -> Option<f64>| {
        for total in totals {
            let mut tell = |site, of_holder| {
                if let Some(value) = get(of_holder) {
                    sink.gauge(metric, &[total.name, total.store, site], value);
                }
            };
            for (site, holder) in total.family.holders.iter() {
                tell(site, total.live.of_holder(*holder).unwrap_or_default());
            }
            for (site, holder) in [(OTHER, MAX_SITES), ("unknown", live::UNKNOWN)] {
                if let Some(of_holder) = total.live.of_holder(holder) {
                    tell(site, of_holder);
                }
            }
        }
    };
    each(&catalog::WAITING_ON, &|holder| Some(f64::from(holder.waiters)));
    each(&catalog::WAITING_ON_OLDEST, &|holder| Some(holder.oldest.to_unix_seconds()));
    each(&catalog::WAITING_ON_HOLD, &|holder| Some(holder.hold.map_or(0.0, |hold| f64::from(hold.waiters))));
    // Without a hold that is waited for, an age does not exist. If the start of the hold was not recorded, the age is
    // unknown.
    each(&catalog::WAITING_ON_HOLD_START, &|holder| holder.hold.and_then(|hold| hold.since));
}

/// Exports how long callers waited for each holder, for every known site, so that its series starts at 0.
fn blocked(sink: &mut impl Sink, total: &Total<'_>, counts: &Counts) {
    let none = Histogram::default();
    for (site, number) in total.family.holders.iter() {
        let histogram = counts.blocked.get(*number).unwrap_or(&none);
        sink.histogram(&catalog::BLOCKED, &[total.name, total.store, site], histogram.buckets());
    }
    if let Some(histogram) = counts.blocked.get(MAX_SITES) {
        sink.histogram(&catalog::BLOCKED, &[total.name, total.store, OTHER], histogram.buckets());
    }
}
