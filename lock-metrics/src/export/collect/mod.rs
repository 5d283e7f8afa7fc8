//! Adds up the shards and passes every series to a sink.

mod fleet;
mod live;
mod uses;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::catalog;
use crate::export::collect::live::Live;
use crate::export::sink::{Chosen, Sink};
use crate::state::counts::{Counts, LATENESS_BUCKETS};
use crate::state::histogram::Histogram;
use crate::state::table::Phase;
use crate::state::{Core, Family, MAX_LOCKS, MAX_SITES, Node, OTHER};
use crate::words::labels;
use crate::words::time::{Moment, nanos};

/// One lock name with its sums.
struct Total<'a> {
    name: &'a str,
    family: &'a Family,
    /// The stores it is shown with.
    stores: Vec<(usize, &'a str)>,
    /// By [`labels::MODES`]: the first, and those that were asked for.
    modes: [Option<Counts>; labels::MODES.len()],
    live: Live,
}

/// The index and the name of a mode, and its sums.
type OfMode<'a> = (usize, &'static str, &'a Counts);

impl Total<'_> {
    /// Returns the sums of each mode that is shown, with its index and its name.
    fn modes(&self) -> impl Iterator<Item = OfMode<'_>> {
        let all = labels::MODES.into_iter().zip(&self.modes).enumerate();
        all.filter_map(|(mode, (name, counts))| Some((mode, name, counts.as_ref()?)))
    }

    /// Returns the sums of all modes.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.modes().for_each(|(_, _, counts)| sum.add(counts));
        sum
    }

    /// Returns how long the lock was held, including holds that still last.
    fn held_seconds(&self) -> f64 {
        let holds = self.modes().flat_map(|(_, _, counts)| counts.holds.buckets());
        let ended: f64 = holds.map(|bucket| bucket.sum).sum();
        let total = Duration::from_secs_f64(ended.max(0.0)).saturating_add(self.live.held_for);
        // The lock itself measures a hold again when it ends: that must not make a total fall.
        let told = self.family.held_nanos.fetch_max(nanos(total), Ordering::Relaxed);
        Duration::from_nanos(told.max(nanos(total))).as_secs_f64()
    }
}

impl Core {
    /// Passes everything to `sink`.
    pub(crate) fn collect(&self, sink: &mut impl Sink) {
        let sink = &mut Chosen { sink, settings: &self.settings };
        let now = Moment::now();
        let (totals, lateness) = self.add_up(now);
        let overflow = self.label_overflow.load(Ordering::Relaxed);
        locks(sink, &totals);
        sink.counter(&catalog::LABEL_OVERFLOW, &[], overflow);
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
        sink.gauge(&catalog::START, &[], self.start.to_unix_seconds());
        sink.gauge(&catalog::SAMPLER_LAST_RUN, &[], self.last_run().to_unix_seconds());
        sink.gauge(&catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
    }

    fn add_up(&self, now: Moment) -> (Vec<Total<'_>>, Histogram<LATENESS_BUCKETS>) {
        let families = self.families.iter().chain([(OTHER, &self.other)]);
        let total = |(name, family)| {
            let stores = self.stores_of(family);
            Total { name, family, stores, modes: [Some(Counts::default()), None, None], live: Live::default() }
        };
        let mut totals: Vec<Total<'_>> = families.map(total).collect();
        let other = totals.len() - 1;
        let mut lateness = Histogram::default();
        let mut blame = live::Blame::default();
        for shard in self.table.shards() {
            // A name that was added after `totals` was made is in the next scrape.
            let place = |family| if family == MAX_LOCKS { Some(other) } else { Some(family).filter(|at| *at < other) };
            for (family, mode, counts) in shard.counts.iter() {
                if let Some(at) = place(family) {
                    totals[at].modes[mode].get_or_insert_default().add(counts);
                }
            }
            for row in shard.rows.values() {
                let Some(at) = place(row.family()) else { continue };
                totals[at].live.add(row, now);
                totals[at].modes[row.mode()].get_or_insert_default();
                if let Phase::Waiting { since, holder } = &row.phase {
                    let holder = holder.as_ref().map(|holder| totals[at].family.holder(holder.site()));
                    blame.add(at, row, *since, holder);
                }
            }
            lateness.add(&shard.lateness);
        }
        blame.charge_waits(|at, store, whom, since| totals[at].live.blame(store, whom, since));
        if self.label_overflow.load(Ordering::Relaxed) == 0 {
            totals.pop();
        }
        (totals, lateness)
    }

    fn nodes_to(&self, sink: &mut impl Sink) {
        // The name that a member has in a quorum may not be that of its node.
        let is_used = |node: &Node| {
            node.connected.is_some() || node.commands.iter().any(|op| op.buckets().iter().any(|b| b.count > 0))
        };
        let other = Some((OTHER, &self.other_node));
        let other = other.filter(|(_, node)| is_used(&node.lock().unwrap_or_else(PoisonError::into_inner)));
        let nodes: Vec<(&str, &Mutex<Node>)> = self.nodes.iter().chain(other).collect();
        let each = |tell: &mut dyn FnMut(&str, &Node)| {
            for (name, node) in &nodes {
                tell(name, &node.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        each(&mut |name, node| {
            if !is_used(node) {
                return;
            }
            for (kind, total) in labels::ERROR_KINDS.iter().zip(node.errors.iter()) {
                sink.counter(&catalog::BACKEND_ERRORS, &[name, kind], total);
            }
        });
        each(&mut |name, node| {
            if !is_used(node) {
                return;
            }
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
            if let Some(policy) = node.policy {
                sink.gauge(&catalog::EVICTION_POLICY, &[name, labels::POLICIES[policy]], 1.0);
            }
        });
        each(&mut |name, node| sink.counter(&catalog::FAILOVERS, &[name], node.failovers));
        each(&mut |name, node| {
            for (change, total) in labels::CHANGES.iter().zip(node.changes) {
                sink.counter(&catalog::TOPOLOGY_CHANGES, &[name, change], total);
            }
        });
        each(&mut |name, node| {
            for (kind, total) in labels::REDIRECTIONS.iter().zip(node.redirections) {
                sink.counter(&catalog::REDIRECTIONS, &[name, kind], total);
            }
        });
        each(&mut |name, node| {
            if let Some(slots) = node.slots_open {
                sink.gauge(&catalog::SLOTS_OPEN, &[name], f64::from(slots));
            }
        });
        each(&mut |name, node| {
            if let Some((replicas, _)) = node.replicas {
                sink.gauge(&catalog::REPLICAS, &[name], f64::from(replicas));
            }
        });
        each(&mut |name, node| {
            if let Some((_, least)) = node.replicas {
                sink.gauge(&catalog::MIN_REPLICAS, &[name], f64::from(least));
            }
        });
        each(&mut |name, node| sink.histogram(&catalog::CONFIRM, &[name], node.confirmations.buckets()));
        each(&mut |name, node| sink.counter(&catalog::CONFIRM_SHORTFALLS, &[name], node.shortfalls));
        each(&mut |name, node| {
            for (state, members) in
                labels::MEMBER_STATES.iter().zip(node.quorum.iter().flat_map(|quorum| quorum.states))
            {
                sink.gauge(&catalog::QUORUM_MEMBERS, &[name, state], f64::from(members));
            }
        });
        each(&mut |name, node| {
            if let Some(quorum) = &node.quorum {
                sink.gauge(&catalog::QUORUM_MAJORITY, &[name], f64::from(quorum.majority));
            }
        });
        each(&mut |name, node| {
            if let Some(quorum) = &node.quorum {
                sink.gauge(&catalog::QUORUM_DEGRADED_HOLDS, &[name], f64::from(quorum.degraded_holds));
            }
        });
        each(&mut |name, node| {
            if let Some(repairs) = node.repairs {
                sink.counter(&catalog::QUORUM_REPAIRS, &[name], repairs);
            }
        });
        each(&mut |name, node| {
            for (phase, rounds) in labels::PHASES.iter().zip(node.quorum.iter().flat_map(|quorum| quorum.rounds)) {
                sink.counter(&catalog::QUORUM_ROUNDS, &[name, phase], rounds);
            }
        });
    }
}

/// Exports the series that have a lock name.
fn locks(sink: &mut impl Sink, totals: &[Total<'_>]) {
    by_mode(sink, totals);
    let sums: Vec<(&str, Counts)> = totals.iter().map(|total| (total.name, total.counts())).collect();
    let mut counters = |metric, values: &[&str], get: &dyn Fn(&Counts) -> Vec<u64>| {
        for (name, counts) in &sums {
            for (value, count) in values.iter().zip(get(counts)) {
                sink.counter(metric, &[name, value], count);
            }
        }
    };
    counters(&catalog::GRANTS, &labels::PATHS, &|counts| counts.grants.iter().collect());
    counters(&catalog::RENEWALS, &labels::RENEWAL_OUTCOMES, &|counts| counts.renewals.iter().collect());
    counters(&catalog::LOST, &labels::LOSS_REASONS, &|counts| counts.lost.iter().collect());
    counters(&catalog::RELEASES, &labels::RELEASE_OUTCOMES, &|counts| counts.releases.iter().collect());
    for (name, counts) in &sums {
        sink.counter(&catalog::UNLOCKED_RUNS, &[name], counts.unlocked_runs);
    }
    for (name, counts) in &sums {
        sink.counter(&catalog::FENCING_REGRESSIONS, &[name], counts.fencing_regressions);
    }
    for (name, counts) in &sums {
        sink.counter(&catalog::ORDER_INVERSIONS, &[name], counts.order_inversions);
    }
    for total in totals {
        sink.seconds(&catalog::HELD_SECONDS, &[total.name], total.held_seconds());
    }
    for (name, counts) in &sums {
        sink.histogram(&catalog::LEASE_RATIO, &[name], counts.lease_ratio.buckets());
    }
    for (total, (_, counts)) in totals.iter().zip(&sums) {
        blocked(sink, total, counts);
    }
    let mut gauges = |metric, get: &dyn Fn(&Total<'_>) -> f64| {
        for total in totals {
            sink.gauge(metric, &[total.name], get(total));
        }
    };
    gauges(&catalog::OLDEST_HOLD, &|total| total.live.oldest_hold.to_unix_seconds());
    gauges(&catalog::OLDEST_WAIT, &|total| total.live.oldest_wait.to_unix_seconds());
    gauges(&catalog::LEASE_EXPIRY, &|total| total.live.lease_expiry.to_unix_seconds());
    gauges(&catalog::TTL, &|total| total.family.ttl().as_secs_f64());
    for total in totals {
        for (site, place) in total.family.call_sites() {
            let stuck_after = place.stuck_after(total.family).as_secs_f64();
            sink.gauge(&catalog::STUCK_AFTER, &[total.name, site], stuck_after);
        }
    }
    for total in totals {
        for (site, place) in total.family.sites.iter() {
            let function = if place.is_function { site } else { "" };
            sink.gauge(&catalog::SITE_INFO, &[total.name, site, function], 1.0);
        }
    }
    by_site(sink, totals);
    by_holder(sink, totals);
    uses::uses(sink, totals);
}

/// Exports the series that tell the modes of a lock apart.
fn by_mode(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let each = |tell: &mut dyn FnMut(&Total<'_>, OfMode<'_>)| {
        for total in totals {
            total.modes().for_each(|mode| tell(total, mode));
        }
    };
    each(&mut |total, (_, mode, counts)| {
        for (outcome, count) in labels::ACQUIRE_OUTCOMES.iter().zip(counts.acquisitions.iter()) {
            sink.counter(&catalog::ACQUISITIONS, &[total.name, outcome, mode], count);
        }
    });
    each(&mut |total, (_, mode, counts)| {
        for (number, outcome) in labels::WAIT_OUTCOMES.iter().enumerate() {
            let exemplar = |bucket| counts.exemplar(number, bucket);
            sink.traced(&catalog::WAIT, &[total.name, outcome, mode], counts.waits[number].buckets(), &exemplar);
        }
    });
    each(&mut |total, (_, mode, counts)| sink.histogram(&catalog::HOLD, &[total.name, mode], counts.holds.buckets()));
    each(&mut |total, (at, mode, _)| {
        sink.gauge(&catalog::WAITERS, &[total.name, mode], f64::from(total.live.waiters[at]));
    });
    each(&mut |total, (at, mode, _)| {
        for (number, store) in &total.stores {
            sink.gauge(&catalog::HELD, &[total.name, store, mode], f64::from(total.live.held_in(*number, at)));
        }
    });
}

/// Exports who holds, since when, and how many hold for too long, for every known call site, so
/// that an alert that names one ends.
fn by_site(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let mut each = |metric, get: &dyn Fn(live::OfSite) -> f64| {
        for total in totals {
            for (site, place) in total.family.call_sites() {
                for (number, store) in &total.stores {
                    let of_site = total.live.of_site(*number, place.number);
                    sink.gauge(metric, &[total.name, store, site], get(of_site));
                }
            }
        }
    };
    each(&catalog::SITE_OLDEST_HOLD, &|site| site.oldest.to_unix_seconds());
    each(&catalog::STUCK, &|site| f64::from(site.stuck));
}

/// Exports who waits for whom, for every known holder, and for others if callers wait for them.
fn by_holder(sink: &mut impl Sink, totals: &[Total<'_>]) {
    let mut each = |metric, get: &dyn Fn(live::OfHolder) -> f64| {
        for total in totals {
            for (number, store) in &total.stores {
                for (site, holder) in total.family.holders.iter() {
                    let of_holder = total.live.of_holder(*number, *holder).unwrap_or_default();
                    sink.gauge(metric, &[total.name, store, site], get(of_holder));
                }
                for (site, holder) in [(OTHER, MAX_SITES), ("unknown", live::UNKNOWN)] {
                    if let Some(of_holder) = total.live.of_holder(*number, holder) {
                        sink.gauge(metric, &[total.name, store, site], get(of_holder));
                    }
                }
            }
        }
    };
    each(&catalog::WAITING_ON, &|holder| f64::from(holder.waiters));
    each(&catalog::WAITING_ON_OLDEST, &|holder| holder.oldest.to_unix_seconds());
}

/// Exports how long callers waited for each holder, for every known site, so that its series starts
/// at 0.
fn blocked(sink: &mut impl Sink, total: &Total<'_>, counts: &Counts) {
    let none = Histogram::default();
    for (site, number) in total.family.holders.iter() {
        let histogram = counts.blocked.get(*number).unwrap_or(&none);
        sink.histogram(&catalog::BLOCKED, &[total.name, site], histogram.buckets());
    }
    if let Some(histogram) = counts.blocked.get(MAX_SITES) {
        sink.histogram(&catalog::BLOCKED, &[total.name, OTHER], histogram.buckets());
    }
}
