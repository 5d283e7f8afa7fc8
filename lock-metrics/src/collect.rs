//! Adds the shards up and tells every series to a sink.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::catalog::{self, Metric};
use crate::counts::{Counts, LATENESS_BUCKETS};
use crate::histogram::{Bucket, Histogram};
use crate::labels;
use crate::state::{Core, Family, MAX_LOCKS, MAX_SITES, Node, OTHER};
use crate::table::{Phase, Row};
use crate::time::UnixTime;

/// Takes the value of every series, metric by metric.
pub(crate) trait Sink {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64);
    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64);
    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]);
}

/// One lock name with its sums.
struct Total<'a> {
    name: &'a str,
    family: &'a Family,
    counts: Counts,
    live: Live,
}

/// What goes on now under one lock name.
#[derive(Default)]
struct Live {
    held: u32,
    waiters: u32,
    oldest_hold: UnixTime,
    /// The oldest hold of each call site, by its number, [`MAX_SITES`] for the rest.
    oldest_by_site: BTreeMap<usize, UnixTime>,
    oldest_wait: UnixTime,
    lease_expiry: UnixTime,
}

impl Live {
    fn add(&mut self, row: &Row) {
        match &row.phase {
            Phase::Waiting { since, .. } => {
                self.waiters += 1;
                self.oldest_wait = self.oldest_wait.earlier(*since);
            }
            Phase::Held(hold) if !hold.reentrant => {
                self.held += 1;
                self.oldest_hold = self.oldest_hold.earlier(hold.since);
                let of_site = self.oldest_by_site.entry(row.site()).or_default();
                *of_site = of_site.earlier(hold.since);
                self.lease_expiry = self.lease_expiry.earlier(hold.expiry);
            }
            Phase::Held(_) => {}
        }
    }
}

impl Core {
    /// Tells everything to `sink`.
    pub(crate) fn collect(&self, sink: &mut impl Sink) {
        let (totals, lateness) = self.add_up();
        let overflow = self.label_overflow.load(Ordering::Relaxed);
        locks(sink, &totals);
        sink.counter(&catalog::LABEL_OVERFLOW, &[], overflow);
        sink.counter(&catalog::FENCING_REJECTIONS, &[], self.fencing_rejections.load(Ordering::Relaxed));
        sink.histogram(&catalog::RENEWAL_LATENESS, &[], lateness.buckets());
        self.nodes_to(sink);
        self.fleet_to(sink);
        sink.gauge(&catalog::SAMPLER_LAST_RUN, &[], self.last_run().to_seconds());
        sink.gauge(&catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
    }

    fn add_up(&self) -> (Vec<Total<'_>>, Histogram<LATENESS_BUCKETS>) {
        let mut totals: Vec<Total<'_>> = self.families.iter().chain([(OTHER, &self.other)]).map(total).collect();
        let other = totals.len() - 1;
        let mut lateness = Histogram::default();
        for shard in self.table.shards() {
            // A name that was added after `totals` was made is in the next scrape.
            let place = |family| if family == MAX_LOCKS { Some(other) } else { Some(family).filter(|at| *at < other) };
            for (family, counts) in shard.counts.iter() {
                if let Some(at) = place(family) {
                    totals[at].counts.add(counts);
                }
            }
            for row in shard.rows.values() {
                if let Some(at) = place(row.family()) {
                    totals[at].live.add(row);
                }
            }
            lateness.add(&shard.lateness);
        }
        if self.label_overflow.load(Ordering::Relaxed) == 0 {
            totals.pop();
        }
        (totals, lateness)
    }

    fn nodes_to(&self, sink: &mut impl Sink) {
        let is_used = |node: &Mutex<Node>| {
            let node = node.lock().unwrap_or_else(PoisonError::into_inner);
            node.connected.is_some() || node.commands.iter().any(|op| op.buckets().iter().any(|b| b.count > 0))
        };
        let other = Some((OTHER, &self.other_node)).filter(|(_, node)| is_used(node));
        let nodes: Vec<(&str, &Mutex<Node>)> = self.nodes.iter().chain(other).collect();
        let each = |tell: &mut dyn FnMut(&str, &Node)| {
            for (name, node) in &nodes {
                tell(name, &node.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        each(&mut |name, node| {
            for (kind, total) in labels::ERROR_KINDS.iter().zip(node.errors.iter()) {
                sink.counter(&catalog::BACKEND_ERRORS, &[name, kind], total);
            }
        });
        each(&mut |name, node| {
            for (op, histogram) in labels::OPS.iter().zip(&node.commands) {
                sink.histogram(&catalog::COMMAND, &[op, name], histogram.buckets());
            }
        });
        each(&mut |name, node| {
            if let Some(up) = node.connected {
                sink.gauge(&catalog::CONNECTED, &[name], f64::from(u8::from(up)));
            }
        });
        each(&mut |name, node| {
            for (policy, set) in labels::POLICIES.iter().zip(node.policies) {
                if let Some(set) = set {
                    sink.gauge(&catalog::EVICTION_POLICY, &[name, policy], f64::from(u8::from(set)));
                }
            }
        });
    }
}

fn total<'a>((name, family): (&'a str, &'a Family)) -> Total<'a> {
    Total { name, family, counts: Counts::default(), live: Live::default() }
}

/// Tells what carries a lock name.
fn locks(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let mut counters = |metric, values: &[&str], get: &dyn Fn(&Counts) -> Vec<u64>| {
        for total in totals {
            for (value, count) in values.iter().zip(get(&total.counts)) {
                sink.counter(metric, &[total.name, value], count);
            }
        }
    };
    counters(&catalog::ACQUISITIONS, &labels::ACQUIRE_OUTCOMES, &|counts| counts.acquisitions.iter().collect());
    counters(&catalog::GRANTS, &labels::PATHS, &|counts| counts.grants.iter().collect());
    counters(&catalog::RENEWALS, &labels::RENEWAL_OUTCOMES, &|counts| counts.renewals.iter().collect());
    counters(&catalog::LOST, &labels::LOSS_REASONS, &|counts| counts.lost.iter().collect());
    counters(&catalog::RELEASES, &labels::RELEASE_OUTCOMES, &|counts| counts.releases.iter().collect());
    for total in totals {
        sink.counter(&catalog::UNLOCKED_RUNS, &[total.name], total.counts.unlocked_runs);
    }
    for total in totals {
        sink.counter(&catalog::FENCING_REGRESSIONS, &[total.name], total.counts.fencing_regressions);
    }
    for total in totals {
        for (outcome, histogram) in labels::WAIT_OUTCOMES.iter().zip(&total.counts.waits) {
            sink.histogram(&catalog::WAIT, &[total.name, outcome], histogram.buckets());
        }
    }
    for total in totals {
        sink.histogram(&catalog::HOLD, &[total.name], total.counts.holds.buckets());
    }
    for total in totals {
        sink.histogram(&catalog::LEASE_RATIO, &[total.name], total.counts.lease_ratio.buckets());
    }
    for total in totals {
        blocked(sink, total);
    }
    let mut gauges = |metric, get: &dyn Fn(&Total<'_>) -> f64| {
        for total in totals {
            sink.gauge(metric, &[total.name], get(total));
        }
    };
    gauges(&catalog::HELD, &|total| f64::from(total.live.held));
    gauges(&catalog::WAITERS, &|total| f64::from(total.live.waiters));
    gauges(&catalog::OLDEST_HOLD, &|total| total.live.oldest_hold.to_seconds());
    gauges(&catalog::OLDEST_WAIT, &|total| total.live.oldest_wait.to_seconds());
    gauges(&catalog::LEASE_EXPIRY, &|total| total.live.lease_expiry.to_seconds());
    gauges(&catalog::STUCK_AFTER, &|total| total.family.stuck_after().as_secs_f64());
    gauges(&catalog::TTL, &|total| total.family.ttl().as_secs_f64());
    for total in totals {
        for (site, _) in total.family.sites.iter() {
            sink.gauge(&catalog::SITE_INFO, &[total.name, site], 1.0);
        }
    }
    for total in totals {
        oldest_by_site(sink, total);
    }
}

/// Tells since when each call site holds: every site known, so that an alert that names one ends.
fn oldest_by_site(sink: &mut impl Sink, total: &Total<'_>) {
    let metric = &catalog::SITE_OLDEST_HOLD;
    let oldest = |number: &usize| total.live.oldest_by_site.get(number).copied().unwrap_or_default().to_seconds();
    for (site, number) in total.family.sites.iter() {
        sink.gauge(metric, &[total.name, site], oldest(number));
    }
    if total.family.has_more_sites() {
        sink.gauge(metric, &[total.name, OTHER], oldest(&MAX_SITES));
    }
}

/// Tells who made others wait: every holder's site known, so that its series starts at 0.
fn blocked(sink: &mut impl Sink, total: &Total<'_>) {
    let none = Histogram::default();
    for (site, number) in total.family.holders.iter() {
        let histogram = total.counts.blocked.get(*number).unwrap_or(&none);
        sink.histogram(&catalog::BLOCKED, &[total.name, site], histogram.buckets());
    }
    if let Some(histogram) = total.counts.blocked.get(MAX_SITES) {
        sink.histogram(&catalog::BLOCKED, &[total.name, OTHER], histogram.buckets());
    }
}
