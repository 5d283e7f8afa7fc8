//! Metrics of the servers behind the locks, and of what would survive a failure.

use super::{Metric, MetricKind, MetricUnit};

pub(crate) static FAILOVERS: Metric = Metric::new(
    "distributed_lock_failovers_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend"],
    "How often another server took over, or the server was restarted: locks may be missing. 0 for PostgreSQL, whose failovers change the server in store_info.",
);
pub(crate) static STORE_INFO: Metric = Metric::new(
    "distributed_lock_store_info",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["store", "server", "version", "topology"],
    "1 for the server behind a store, by the start of its id: Redis master_replid, which a restart and a failover change, or PostgreSQL timeline and system identifier. Absent for the in-memory store.",
);
pub(crate) static TOPOLOGY_CHANGES: Metric = Metric::new(
    "distributed_lock_topology_changes_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend", "change"],
    "How often the servers of the locks changed.",
);
pub(crate) static REDIRECTIONS: Metric = Metric::new(
    "distributed_lock_redirections_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend", "kind"],
    "How often a master of a cluster redirected a command, or asked for a retry.",
);
pub(crate) static SLOTS_OPEN: Metric = Metric::new(
    "distributed_lock_slots_open",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "Slots that are being moved from or to a master of a cluster: new locks in them wait.",
);
pub(crate) static REPLICAS: Metric = Metric::new(
    "distributed_lock_replicas",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "Replicas that are connected to the node.",
);
pub(crate) static MIN_REPLICAS: Metric = Metric::new(
    "distributed_lock_min_replicas",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "The number of connected replicas without which the node refuses writes (min-replicas-to-write).",
);
pub(crate) static FAILOVER_EXPOSED: Metric = Metric::new(
    "distributed_lock_failover_exposed",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "1 if a failover of the node may lose held locks and its URL has neither acks=1 (or more) nor acks=0, else 0.",
);
pub(crate) static CONFIRM: Metric = Metric::new(
    "distributed_lock_confirm_seconds",
    MetricKind::Histogram(&[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0]),
    MetricUnit::Seconds,
    &["backend"],
    "Time until replicas or disks confirmed a command, or the wait for them ended.",
);
pub(crate) static CONFIRM_SHORTFALLS: Metric = Metric::new(
    "distributed_lock_confirm_shortfalls_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend"],
    "How often too few replicas or disks confirmed: those grants were undone, those renewals did not count.",
);
pub(crate) static QUORUM_MEMBERS: Metric = Metric::new(
    "distributed_lock_quorum_members",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend", "state"],
    "Members of the quorum by state: counted, excluded because they lost their data, away, or disagrees about the list of members.",
);
pub(crate) static QUORUM_MAJORITY: Metric = Metric::new(
    "distributed_lock_quorum_majority",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "How many members of the quorum must grant a lock.",
);
pub(crate) static QUORUM_DEGRADED_HOLDS: Metric = Metric::new(
    "distributed_lock_quorum_degraded_holds",
    MetricKind::Gauge,
    MetricUnit::Count,
    &["backend"],
    "Held locks that not every member of the quorum confirmed at the last renewal.",
);
pub(crate) static QUORUM_REPAIRS: Metric = Metric::new(
    "distributed_lock_quorum_repairs_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend"],
    "Claims that were written again to a member of a quorum that had lost them.",
);
pub(crate) static QUORUM_ROUNDS: Metric = Metric::new(
    "distributed_lock_quorum_rounds_total",
    MetricKind::Counter,
    MetricUnit::Count,
    &["backend", "phase"],
    "Rounds of votes: the first of each attempt, and the second if members gave different tokens.",
);
