//! Every metric of this crate, in one table: its name, labels, buckets and help. Its name tells its type and unit.
//!
//! Tests check dashboards, alert rules and documents against this table, in both directions. The names are written in
//! full, so that a search for a name on a dashboard ends here.

/// Declares each metric of a table, and a list of all of them in the order of the table.
///
/// A metric with `buckets` is a histogram, and a name that ends in `_total` is a counter. Prometheus demands units at the
/// end of names, so the unit is read there.
macro_rules! metrics {
    ($all:ident: $($metric:ident $name:literal [$($label:literal),*] $(buckets [$($bound:literal),+])? $help:literal;)+) => {
        $(pub(crate) static $metric: Metric = Metric::new($name, &[$($label),*], &[$($($bound),+)?], $help);)+
        pub(super) static $all: &[&Metric] = &[$(&$metric),+];
    };
}

pub(crate) mod fleet;

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
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        let bytes = name.as_bytes();
        let kind = match bytes.last_chunk() {
            _ if !buckets.is_empty() => MetricKind::Histogram(buckets),
            Some(b"_total") => MetricKind::Counter,
            _ => MetricKind::Gauge,
        };
        let unit = match (bytes.last_chunk(), bytes.last_chunk(), bytes.last_chunk()) {
            (Some(b"_seconds"), _, _) | (_, Some(b"_seconds_total"), _) => MetricUnit::Seconds,
            (_, _, Some(b"_ratio")) => MetricUnit::Ratio,
            _ => MetricUnit::Count,
        };
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

metrics! { CATALOG:
    ACQUISITIONS "distributed_lock_acquisitions_total" ["lock", "store", "outcome", "mode"]
        "Acquires that ended, by outcome.";
    GRANTS "distributed_lock_grants_total" ["lock", "store", "path"]
        "Locks granted, by path; every path but uncontended had to wait or was nested.";
    RENEWALS "distributed_lock_renewals_total" ["lock", "store", "outcome"]
        "Renewals by the watchdog; an error is retried until the lease ends.";
    LOST "distributed_lock_lost_total" ["lock", "store", "reason"]
        "Locks lost while they were held.";
    RELEASES "distributed_lock_releases_total" ["lock", "store", "outcome"]
        "Releases: awaited, by dropping the guard, without a clear answer, abandoned because the lease ended first, or by a shutdown.";
    UNLOCKED_RUNS "distributed_lock_unlocked_runs_total" ["lock", "store"]
        "Protected bodies that ran without their lock, because the code allows it.";
    FENCING_REJECTIONS "distributed_lock_fencing_rejections_total" []
        "Writes refused because their fencing token was stale.";
    FENCING_REGRESSIONS "distributed_lock_fencing_regressions_total" ["lock", "store"]
        "Grants whose fencing token was not greater than an earlier one of the key: the store lost data.";
    BACKEND_ERRORS "distributed_lock_backend_errors_total" ["op", "backend", "kind"]
        "Commands to the store that failed.";
    LABEL_OVERFLOW "distributed_lock_label_overflow_total" ["label"]
        "Acquires with a label \"other\", because there are more than 200 lock names in a store, 32 call sites or holders of a lock, or 16 stores.";
    // Programs often wait at most 1, 3 or 10 s. Bounds slightly above these keep such waits in a bucket that looks
    // right.
    WAIT "distributed_lock_wait_seconds" ["lock", "store", "outcome", "mode"]
        buckets [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.1, 1.6, 2.1, 2.6, 3.1, 4.1, 5.1, 7.6, 10.5, 30.5]
        "Time from the request to its answer, without requests that did not wait and found the lock busy.";
    HOLD "distributed_lock_hold_seconds" ["lock", "store", "mode"]
        buckets [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0]
        "Time from the grant to the release or loss, without reentrant grants.";
    BLOCKED "distributed_lock_blocked_seconds" ["lock", "store", "holder_site"]
        buckets [0.1, 2.5, 10.0]
        "Time spent waiting, by the call site that held the lock last; foreign if that was another library.";
    RENEWAL_LATENESS "distributed_lock_renewal_lateness_seconds" []
        buckets [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
        "How much later than planned renewals were sent.";
    LEASE_RATIO "distributed_lock_lease_remaining_ratio" ["lock", "store"]
        buckets [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
        "Share of the lease that was left when a renewal succeeded.";
    COMMAND "distributed_lock_backend_command_seconds" ["op", "backend"]
        buckets [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]
        "Time from sending a command to the store to its answer or failure.";
    HELD "distributed_lock_held" ["lock", "store", "mode"]
        "Locks that this process holds now, without reentrant grants.";
    HELD_SECONDS "distributed_lock_held_seconds_total" ["lock", "store"]
        "Time for which locks were held, including holds that still last.";
    STUCK "distributed_lock_stuck" ["lock", "store", "site"]
        "Locks that this call site holds for longer than its stuck_after. Leaders and jobs count only if they set one.";
    STUCK_OLDEST "distributed_lock_stuck_oldest_start_timestamp_seconds" ["lock", "store", "site"]
        "When the oldest stuck hold of this call site began, 0 if there is none.";
    STUCK_WAITERS "distributed_lock_stuck_waiters" ["lock", "store", "site"]
        "Acquires of this process that wait long for a stuck hold of this call site, or timed out within the last minute. A wait is long after 5 s or the lock's median wait, whichever is longer, but at most half of its own limit.";
    WAITERS "distributed_lock_waiters" ["lock", "store", "mode"]
        "Acquires of this process that wait now, without candidates of elections.";
    WAITING_ON "distributed_lock_waiting_on" ["lock", "store", "holder_site"]
        "Acquires that wait now, by the call site that holds the lock; unknown if the store did not name it.";
    WAITING_ON_OLDEST "distributed_lock_waiting_on_oldest_start_timestamp_seconds" ["lock", "store", "holder_site"]
        "When the oldest present wait for this call site began, 0 if there is none.";
    WAITING_ON_HOLD "distributed_lock_waiting_on_oldest_hold" ["lock", "store", "holder_site"]
        "Acquires that wait long (as in stuck_waiters) for exactly the oldest hold of this call site that has waiters, or timed out within the last minute. For readers and permits, whose start is unknown: all that wait.";
    WAITING_ON_HOLD_START "distributed_lock_waiting_on_oldest_hold_start_timestamp_seconds" ["lock", "store", "holder_site"]
        "When that hold was granted, by the clock of the store; absent without waiters, if the start is unknown, and for readers and permits.";
    PERMITS_HELD "distributed_lock_permits_held" ["lock", "store"]
        "Permits that this process has now; a hold counts by its weight.";
    OLDEST_HOLD "distributed_lock_oldest_hold_start_timestamp_seconds" ["lock", "store"]
        "When the oldest present hold began, 0 if there is none.";
    SITE_OLDEST_HOLD "distributed_lock_site_oldest_hold_start_timestamp_seconds" ["lock", "store", "site"]
        "When the oldest present hold of this call site began, 0 if there is none.";
    OLDEST_WAIT "distributed_lock_oldest_wait_start_timestamp_seconds" ["lock", "store"]
        "When the oldest present wait began, 0 if there is none.";
    LEASE_EXPIRY "distributed_lock_lease_min_expiry_timestamp_seconds" ["lock", "store"]
        "When the first of the held leases ends unless it is renewed, 0 if there is none.";
    STUCK_AFTER "distributed_lock_stuck_after_seconds" ["lock", "store", "site"]
        "The age at which a hold of this call site counts as stuck; the largest, if its requests differ. Absent if it is never stuck.";
    TTL "distributed_lock_ttl_seconds" ["lock", "store"]
        "The lease asked for; the largest, if call sites differ.";
    SITE_INFO "distributed_lock_site_info" ["lock", "store", "site", "function"]
        "Call sites of a lock, always 1; with the function under the attribute, else empty.";
    BUILD_INFO "distributed_lock_build_info" ["version"]
        "The version of this library, always 1.";
    NOW "distributed_lock_now_timestamp_seconds" []
        "The time by the clock of this process: an age is the difference of a timestamp to it.";
    STORE_NOW "distributed_lock_store_now_timestamp_seconds" ["store"]
        "The time by the clock of the store, from the last grant; before the first grant, by the clock of the process.";
    STORE_INFO "distributed_lock_store_info" ["store", "server", "version", "topology"]
        "1 for the server behind a store, by the start of its id: Redis master_replid, which a restart and a failover change, or PostgreSQL timeline and system identifier. Absent for the in-memory store.";
    START "distributed_lock_start_timestamp_seconds" []
        "When this process began to count.";
    SAMPLER_LAST_RUN "distributed_lock_sampler_last_run_timestamp_seconds" []
        "When the thread that looks for stuck locks last ran.";
    CONNECTED "distributed_lock_backend_connected" ["backend"]
        "1 while the watchdog's connection to the server is up, else 0; absent for the in-memory store, which has no server.";
    EVICTION_POLICY "distributed_lock_backend_eviction_policy_info" ["backend", "policy"]
        "Always 1 for a server whose maxmemory-policy may evict locks; absent with noeviction, and for PostgreSQL, which never evicts.";
    FAILOVERS "distributed_lock_failovers_total" ["backend"]
        "How often another server took over, or the server was restarted: locks may be missing. 0 for PostgreSQL, whose failovers change the server in store_info.";
    TOPOLOGY_CHANGES "distributed_lock_topology_changes_total" ["backend", "change"]
        "How often the servers of the locks changed.";
    REDIRECTIONS "distributed_lock_redirections_total" ["backend", "kind"]
        "How often a master of a cluster redirected a command, or asked for a retry.";
    SLOTS_OPEN "distributed_lock_slots_open" ["backend"]
        "Slots that are being moved from or to a master of a cluster: new locks in them wait.";
    REPLICAS "distributed_lock_replicas" ["backend"]
        "Replicas that are connected to the node.";
    MIN_REPLICAS "distributed_lock_min_replicas" ["backend"]
        "The number of connected replicas without which the node refuses writes (min-replicas-to-write).";
    FAILOVER_EXPOSED "distributed_lock_failover_exposed" ["backend"]
        "1 if a failover of the node may lose held locks and its URL asks no replica to confirm and lacks acks=0, else 0.";
    CONFIRM "distributed_lock_confirm_seconds" ["backend", "by"]
        buckets [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0]
        "Time until replicas (by=replicas) or the master's disk alone (by=disk) confirmed a command, or the wait for them ended.";
    CONFIRM_SHORTFALLS "distributed_lock_confirm_shortfalls_total" ["backend"]
        "How often too few replicas or disks confirmed: those grants were undone, those renewals did not count.";
    QUORUM_MEMBERS "distributed_lock_quorum_members" ["backend", "state"]
        "Members of the quorum by state: counted, excluded because they lost their data, away, or disagrees about the list of members.";
    QUORUM_MAJORITY "distributed_lock_quorum_majority" ["backend"]
        "How many members of the quorum must grant a lock.";
    QUORUM_DEGRADED_HOLDS "distributed_lock_quorum_degraded_holds" ["backend"]
        "Held locks that not every member of the quorum confirmed at the last renewal.";
    QUORUM_REPAIRS "distributed_lock_quorum_repairs_total" ["backend"]
        "Claims that were written again to a member of a quorum that had lost them.";
    QUORUM_ROUNDS "distributed_lock_quorum_rounds_total" ["backend", "phase"]
        "Rounds of votes: the first of each attempt, and the second if members gave different tokens.";
    PERMITS_LIMIT "distributed_lock_permits_limit" ["lock", "store", "site"]
        "The number of permits that this call site last asked for; absent if the number depends on the key.";
    STRIPES "distributed_lock_stripes" ["lock", "store"]
        "The number of stripes of a striped lock; processes with different numbers do not exclude each other.";
    LEADER "distributed_lock_leader" ["lock", "store"]
        "Elections that this process leads now; 0 if it was only a candidate.";
    CANDIDATES "distributed_lock_candidates" ["lock", "store"]
        "Candidates of this process that wait to lead the election.";
    CANDIDATES_LED "distributed_lock_candidates_led" ["lock", "store"]
        "Candidates of this process to which the store named a leader that uses this library.";
    JOB_LAST_SUCCESS "distributed_lock_last_success_timestamp_seconds" ["lock", "store"]
        "When this process last finished a run of the job without an error, by the clock of the store; 0 if it never did.";
    JOB_PERIOD "distributed_lock_job_period_seconds" ["lock", "store"]
        "The period in which a job runs at most once; the longest, if call sites differ.";
    DEADLOCKS "distributed_lock_deadlocks_total" ["role"]
        "How often a task was in a deadlock: the victim gets an error, a member continues to wait.";
    ORDER_INVERSIONS "distributed_lock_order_inversions_total" ["lock", "store"]
        "How often two locks were first taken in both orders; 0 unless the order is watched.";
    ORDER_EDGE "distributed_lock_order_edge" ["held", "wanted"]
        "Always 1: the lock `wanted` was waited for under the lock `held`. Only where the order is watched; at most 256 pairs.";
}
