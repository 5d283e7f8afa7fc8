//! The rows: what is measured, and the targets.

pub(crate) mod attribute;
mod distinct;
mod drops;
mod growth;
mod handoff;
mod hot;
mod modes;
mod pairs;
pub(crate) mod telemetry;
mod topologies;
mod watchdog;

use crate::Result;
use crate::bench::Bench;
use crate::outcome::Outcome;

/// One row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Bench) -> Result<Outcome>,
}

impl Row {
    pub(crate) fn measure(&self, bench: &mut Bench) -> Result<Outcome> {
        (self.run)(bench).map_err(|error| format!("row {}: {error}", self.name).into())
    }
}

/// The rows of locks that several share, or that are split.
pub(crate) const MODES: [&str; 5] = ["readers-local", "readers", "permits", "segments", "shared-pair"];

/// The rows of stores of several servers.
pub(crate) const TOPOLOGIES: [&str; 4] = ["replicas", "cluster", "quorum", "quorum-network"];

/// Lists the rows of a group.
pub(crate) fn in_group(names: &[&str]) -> Vec<&'static Row> {
    ROWS.iter().filter(|row| names.contains(&row.name)).collect()
}

/// Every row, in the order of the table.
pub(crate) const ROWS: [Row; 28] = [
    Row { name: "idle", about: "latency: 1 task, distinct keys, current-thread", run: distinct::idle },
    Row { name: "idle-mt", about: "latency: 1 task, distinct keys, multi-thread", run: distinct::idle_mt },
    Row { name: "64-ct", about: "throughput: 64 tasks, distinct keys, current-thread", run: distinct::many_ct },
    Row { name: "64-mt", about: "throughput: 64 tasks, distinct keys, multi-thread", run: distinct::many_mt },
    Row { name: "1024-mt", about: "throughput: 1,024 tasks, distinct keys, multi-thread", run: distinct::crowd },
    Row {
        name: "network",
        about: "64 tasks, distinct keys, multi-thread, a round trip of 5 ms or more",
        run: distinct::network,
    },
    Row { name: "hot-ct", about: "hot key: 1 process of 64 tasks, hold 0, current-thread", run: hot::process_ct },
    Row { name: "hot-mt", about: "hot key: 1 process of 64 tasks, hold 0, multi-thread", run: hot::process_mt },
    Row { name: "fleet", about: "hot key: 4 processes of 16 tasks, hold 0", run: hot::fleet },
    Row { name: "fleet-hold", about: "hot key: 4 processes of 16 tasks, hold 1 ms", run: hot::fleet_hold },
    Row {
        name: "remote",
        about: "hot key: 4 processes of 1 task, hold 0, a round trip of 5 ms or more",
        run: hot::remote,
    },
    Row { name: "remote-hold", about: "hot key: 4 processes of 1 task, hold 1 ms, loopback", run: hot::remote_hold },
    Row { name: "hand-off", about: "server time of a release that grants the lock to a waiter", run: handoff::run },
    Row { name: "readers-local", about: "1 process of 64 readers, hold 0, beside one lock", run: modes::local_readers },
    Row {
        name: "readers",
        about: "4 processes of 16 tasks, 95 % reads, hold 1 ms, beside one lock",
        run: modes::readers,
    },
    Row { name: "permits", about: "a semaphore of 16: 4 processes of 16 tasks, hold 1 ms", run: modes::permits },
    Row { name: "segments", about: "any of 16 segments: 4 processes of 16 tasks, hold 1 ms", run: modes::segments },
    Row { name: "shared-pair", about: "server time of a claim that shares a lock with others", run: pairs::run },
    Row {
        name: "replicas",
        about: "one master with a replica: by sentinels, and waiting for the replica; 64 tasks",
        run: topologies::replicas,
    },
    Row { name: "cluster", about: "clusters of 1, 2 and 4 masters, 64 tasks for each", run: topologies::cluster },
    Row { name: "quorum", about: "latency: quorums of three and five, 1 task", run: topologies::quorum },
    Row {
        name: "quorum-network",
        about: "the same, a round trip of 5 ms or more to each member",
        run: topologies::quorum_network,
    },
    Row { name: "watchdog", about: "many locks held and renewed", run: watchdog::run },
    Row { name: "drops", about: "guards dropped as fast as they come, by 64 tasks", run: drops::run },
    Row { name: "telemetry", about: "what the metrics observer costs", run: telemetry::run },
    Row { name: "attribute", about: "the attribute beside the guard API, in memory, uncontended", run: attribute::run },
    Row { name: "growth-keys", about: "64 tasks over few and over many distinct keys", run: growth::keys },
    Row { name: "growth-waiters", about: "hot key: 1 process of few and of many tasks, hold 0", run: growth::waiters },
];
