//! Every metric of this crate: its name, type, unit, labels, buckets and help, in one table.
//!
//! Tests check dashboards, alert rules and documents against this table, in both directions. The names are written in
//! full, so that a search for a name on a dashboard ends here.

pub(crate) mod fleet;
mod live;
mod primitives;
mod process;
mod topology;

pub(crate) use live::{
    HELD, HELD_SECONDS, LEASE_EXPIRY, OLDEST_HOLD, OLDEST_WAIT, PERMITS_HELD, SITE_OLDEST_HOLD, STUCK, STUCK_OLDEST,
    STUCK_WAITERS, WAITERS, WAITING_ON, WAITING_ON_HOLD, WAITING_ON_HOLD_START, WAITING_ON_OLDEST,
};
pub(crate) use primitives::{
    CANDIDATES, CANDIDATES_LED, DEADLOCKS, JOB_LAST_SUCCESS, JOB_PERIOD, LEADER, ORDER_EDGE, ORDER_INVERSIONS,
    PERMITS_LIMIT, STRIPES,
};
pub(crate) use process::{BUILD_INFO, NOW, SAMPLER_LAST_RUN, START, STORE_NOW};
pub(crate) use topology::{
    CONFIRM, CONFIRM_SHORTFALLS, FAILOVER_EXPOSED, FAILOVERS, MIN_REPLICAS, QUORUM_DEGRADED_HOLDS, QUORUM_MAJORITY,
    QUORUM_MEMBERS, QUORUM_REPAIRS, QUORUM_ROUNDS, REDIRECTIONS, REPLICAS, SLOTS_OPEN, STORE_INFO, TOPOLOGY_CHANGES,
};

/// Describes one metric. [`catalog`] lists all of them.
///
/// ```
/// for metric in lock_metrics::catalog() {
///     println!("{}: {}", metric.name(), metric.help());
/// }
/// ```
#[derive(Debug)]
pub struct Metric {
    name: &'static str,
    kind: MetricKind,
    unit: MetricUnit,
    labels: &'static [&'static str],
    help: &'static str,
}

/// The type of a [`Metric`].
///
/// ```
/// use lock_metrics::MetricKind;
///
/// let histograms = lock_metrics::catalog().filter(|metric| matches!(metric.kind(), MetricKind::Histogram(_)));
/// assert!(histograms.count() > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A total that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A classic histogram with these upper bounds. The bound at infinity is left out.
    Histogram(&'static [f64]),
}

/// The unit of a [`Metric`].
///
/// ```
/// use lock_metrics::MetricUnit;
///
/// let durations = lock_metrics::catalog().filter(|metric| metric.unit() == MetricUnit::Seconds);
/// assert!(durations.count() > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricUnit {
    /// A number of things.
    Count,
    /// Seconds, or seconds since the Unix epoch if the name contains `timestamp`.
    Seconds,
    /// A share between 0 and 1.
    Ratio,
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: MetricKind,
        unit: MetricUnit,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, unit, labels, help }
    }

    /// Returns the full name, as Prometheus shows it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the type, and the buckets of a histogram.
    #[must_use]
    pub const fn kind(&self) -> MetricKind {
        self.kind
    }

    /// Returns the unit.
    #[must_use]
    pub const fn unit(&self) -> MetricUnit {
        self.unit
    }

    /// Returns the names of the labels, in the order in which they are written.
    #[must_use]
    pub const fn labels(&self) -> &'static [&'static str] {
        self.labels
    }

    /// Returns the description, in one sentence.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Returns the upper bounds of a histogram. Empty for other types.
    #[must_use]
    pub const fn buckets(&self) -> &'static [f64] {
        match self.kind {
            MetricKind::Histogram(bounds) => bounds,
            MetricKind::Counter | MetricKind::Gauge => &[],
        }
    }
}

/// Lists every metric that this crate exports.
///
/// # Examples
///
/// Gives the buckets to the application's own exporter. Without them, it turns the histograms of this crate into
/// summaries (see [`Builder::with_existing_recorder`](crate::Builder::with_existing_recorder)):
///
/// ```
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
///
/// let mut exporter = PrometheusBuilder::new();
/// for metric in lock_metrics::catalog().filter(|metric| !metric.buckets().is_empty()) {
///     exporter = exporter.set_buckets_for_metric(Matcher::Full(metric.name().to_owned()), metric.buckets())?;
/// }
/// # Ok::<(), metrics_exporter_prometheus::BuildError>(())
/// ```
pub fn catalog() -> impl Iterator<Item = &'static Metric> {
    CATALOG.iter().chain(fleet::FLEET).copied()
}

pub(crate) static ACQUISITIONS: Metric = Metric::new(
    "distributed_lock_acquisitions_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store", "outcome", "mode"],
    "Acquires that ended, by outcome.",
);
pub(crate) static GRANTS: Metric = Metric::new(
    "distributed_lock_grants_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store", "path"],
    "Locks granted, by path; every path but uncontended had to wait or was nested.",
);
pub(crate) static RENEWALS: Metric = Metric::new(
    "distributed_lock_renewals_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store", "outcome"],
    "Renewals by the watchdog; an error is retried until the lease ends.",
);
pub(crate) static LOST: Metric = Metric::new(
    "distributed_lock_lost_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store", "reason"],
    "Locks lost while they were held.",
);
pub(crate) static RELEASES: Metric = Metric::new(
    "distributed_lock_releases_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store", "outcome"],
    "Releases: awaited, by dropping the guard, without a clear answer, abandoned because the lease ended first, or by a shutdown.",
);
pub(crate) static UNLOCKED_RUNS: Metric = Metric::new(
    "distributed_lock_unlocked_runs_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store"],
    "Protected bodies that ran without their lock, because the code allows it.",
);
pub(crate) static FENCING_REJECTIONS: Metric = Metric::new(
    "distributed_lock_fencing_rejections_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &[],
    "Writes refused because their fencing token was stale.",
);
pub(crate) static FENCING_REGRESSIONS: Metric = Metric::new(
    "distributed_lock_fencing_regressions_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["lock", "store"],
    "Grants whose fencing token was not greater than an earlier one of the key: the store lost data.",
);
pub(crate) static BACKEND_ERRORS: Metric = Metric::new(
    "distributed_lock_backend_errors_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["op", "backend", "kind"],
    "Commands to the store that failed.",
);
pub(crate) static LABEL_OVERFLOW: Metric = Metric::new(
    "distributed_lock_label_overflow_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["label"],
    "Acquires with a label \"other\", because there are more than 200 lock names in a store, 32 call sites or holders of a lock, or 16 stores.",
);
pub(crate) static WAIT: Metric = Metric::new(
    "distributed_lock_wait_seconds",
    MetricKind::Histogram(&[
        // Programs often wait at most 1, 3 or 10 s. Bounds slightly above these keep such waits in a bucket that looks
        // right.
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.1, 1.6, 2.1, 2.6, 3.1, 4.1, 5.1, 7.6,
        10.5, 30.5,
    ]),
    MetricUnit::Seconds,
    &["lock", "store", "outcome", "mode"],
    "Time from the request to its answer, without requests that did not wait and found the lock busy.",
);
pub(crate) static HOLD: Metric = Metric::new(
    "distributed_lock_hold_seconds",
    MetricKind::Histogram(&[
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    ]),
    MetricUnit::Seconds,
    &["lock", "store", "mode"],
    "Time from the grant to the release or loss, without reentrant grants.",
);
pub(crate) static BLOCKED: Metric = Metric::new(
    "distributed_lock_blocked_seconds",
    MetricKind::Histogram(&[0.1, 2.5, 10.0]),
    MetricUnit::Seconds,
    &["lock", "store", "holder_site"],
    "Time spent waiting, by the call site that held the lock last; foreign if that was another library.",
);
pub(crate) static RENEWAL_LATENESS: Metric = Metric::new(
    "distributed_lock_renewal_lateness_seconds",
    MetricKind::Histogram(&[0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
    MetricUnit::Seconds,
    &[],
    "How much later than planned renewals were sent.",
);
pub(crate) static LEASE_RATIO: Metric = Metric::new(
    "distributed_lock_lease_remaining_ratio",
    MetricKind::Histogram(&[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
    MetricUnit::Ratio,
    &["lock", "store"],
    "Share of the lease that was left when a renewal succeeded.",
);
pub(crate) static COMMAND: Metric = Metric::new(
    "distributed_lock_backend_command_seconds",
    MetricKind::Histogram(&[
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    ]),
    MetricUnit::Seconds,
    &["op", "backend"],
    "Time from sending a command to the store to its answer or failure.",
);
pub(crate) static STUCK_AFTER: Metric = Metric::new(
    "distributed_lock_stuck_after_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store", "site"],
    "The age at which a hold of this call site counts as stuck; the largest, if its requests differ. Absent if it is never stuck.",
);
pub(crate) static TTL: Metric = Metric::new(
    "distributed_lock_ttl_seconds",
    MetricKind::Gauge,
    MetricUnit::Seconds,
    &["lock", "store"],
    "The lease asked for; the largest, if call sites differ.",
);
pub(crate) static SITE_INFO: Metric = Metric::new(
    "distributed_lock_site_info",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["lock", "store", "site", "function"],
    "Call sites of a lock, always 1; with the function under the attribute, else empty.",
);
pub(crate) static CONNECTED: Metric = Metric::new(
    "distributed_lock_backend_connected",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "1 while the watchdog's connection to the server is up, else 0; absent for the in-memory store, which has no server.",
);
pub(crate) static EVICTION_POLICY: Metric = Metric::new(
    "distributed_lock_backend_eviction_policy_info",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend", "policy"],
    "Always 1 for a server whose maxmemory-policy may evict locks; absent with noeviction, and for PostgreSQL, which never evicts.",
);
static CATALOG: &[&Metric] = &[
    &ACQUISITIONS,
    &GRANTS,
    &RENEWALS,
    &LOST,
    &RELEASES,
    &UNLOCKED_RUNS,
    &FENCING_REJECTIONS,
    &FENCING_REGRESSIONS,
    &BACKEND_ERRORS,
    &LABEL_OVERFLOW,
    &WAIT,
    &HOLD,
    &BLOCKED,
    &RENEWAL_LATENESS,
    &LEASE_RATIO,
    &COMMAND,
    &HELD,
    &HELD_SECONDS,
    &STUCK,
    &STUCK_OLDEST,
    &STUCK_WAITERS,
    &WAITERS,
    &WAITING_ON,
    &WAITING_ON_OLDEST,
    &WAITING_ON_HOLD,
    &WAITING_ON_HOLD_START,
    &PERMITS_HELD,
    &OLDEST_HOLD,
    &SITE_OLDEST_HOLD,
    &OLDEST_WAIT,
    &LEASE_EXPIRY,
    &STUCK_AFTER,
    &TTL,
    &SITE_INFO,
    &BUILD_INFO,
    &NOW,
    &STORE_NOW,
    &STORE_INFO,
    &START,
    &SAMPLER_LAST_RUN,
    &CONNECTED,
    &EVICTION_POLICY,
    &FAILOVERS,
    &TOPOLOGY_CHANGES,
    &REDIRECTIONS,
    &SLOTS_OPEN,
    &REPLICAS,
    &MIN_REPLICAS,
    &FAILOVER_EXPOSED,
    &CONFIRM,
    &CONFIRM_SHORTFALLS,
    &QUORUM_MEMBERS,
    &QUORUM_MAJORITY,
    &QUORUM_DEGRADED_HOLDS,
    &QUORUM_REPAIRS,
    &QUORUM_ROUNDS,
    &PERMITS_LIMIT,
    &STRIPES,
    &LEADER,
    &CANDIDATES,
    &CANDIDATES_LED,
    &JOB_LAST_SUCCESS,
    &JOB_PERIOD,
    &DEADLOCKS,
    &ORDER_INVERSIONS,
    &ORDER_EDGE,
];
