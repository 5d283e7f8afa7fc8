//! The rows: their measurements and targets.

pub(crate) mod crowd;
mod distinct;
pub(crate) mod drops;
pub(crate) mod fleets;
mod growth;
mod hot;
pub(crate) mod memory;
mod others;
pub(crate) mod postgres;
mod shared;
mod stores;
mod waits;
pub(crate) mod watchdog;
pub(crate) mod zookeeper;

use crate::Result;
use crate::bench::Bench;
use crate::contestant::Kind;
use crate::outcome::Outcome;
use crate::process::fleet::Sample;

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

/// Every row, in the order of the table.
pub(crate) const ROWS: [Row; 17] = [
    Row { name: "idle", about: "latency: 1 task, distinct keys", run: distinct::idle },
    Row { name: "many", about: "throughput: many tasks, distinct keys", run: distinct::many },
    Row { name: "hot", about: "one hot key: 1 process of 64 tasks, hold 0", run: hot::process },
    Row { name: "fleet", about: "one hot key: 4 processes of 16 tasks", run: hot::fleet },
    Row {
        name: "remote",
        about: "one hot key: 4 processes of 1 task, hold 0, a round trip of 5 ms or more",
        run: hot::remote,
    },
    Row {
        name: "shared",
        about: "readers, permits and segments: 4 processes of 16 tasks, hold 1 ms, beside one lock",
        run: shared::run,
    },
    Row { name: "stores", about: "replicas and clusters beside one server: 64 tasks, distinct keys", run: stores::run },
    Row { name: "quorum", about: "quorums of three and five beside their members: 1 task", run: stores::quorum },
    Row {
        name: "postgres",
        about: "PostgreSQL: locks beside the statements that they are made of",
        run: postgres::run,
    },
    Row {
        name: "zookeeper",
        about: "ZooKeeper: locks beside the requests that they are made of, and beside Curator",
        run: zookeeper::run,
    },
    Row { name: "watchdog", about: "many locks held and renewed", run: watchdog::run },
    Row { name: "drops", about: "guards dropped as fast as they come, by 64 tasks", run: drops::run },
    Row {
        name: "memory",
        about: "without a server: the attribute beside the guard API, and metrics",
        run: memory::run,
    },
    Row { name: "growth", about: "few and many keys, few and many waiters", run: growth::run },
    Row {
        name: "fleets",
        about: "one hot key: 10, 100 and 1,000 managers with connections of their own, and a server that goes away",
        run: fleets::run,
    },
    Row { name: "waits", about: "400 managers that wait for each of 20 locks, one for 20,000", run: waits::locks },
    Row { name: "candidates", about: "2,000 managers that stand for one election", run: waits::candidates },
];

/// The rows of `--peers`, which need other libraries.
pub(crate) static PEERS: [Row; 6] = [
    Row { name: "lonely", about: "locks of other languages: 1 task", run: others::lonely },
    Row { name: "others", about: "locks of other languages: 64 tasks", run: others::many },
    Row { name: "others-hot", about: "one hot key: 1 process of 64 tasks", run: others::process },
    Row { name: "others-hot-1ms", about: "one hot key: 1 process of 64 tasks", run: others::process_holding },
    Row { name: "others-fleet", about: "one hot key: 4 processes of 16 tasks", run: others::fleet },
    Row { name: "others-fleet-1ms", about: "one hot key: 4 processes of 16 tasks", run: others::fleet_holding },
];

/// The rows of `--fleets`.
pub(crate) const FLEETS: [&str; 3] = ["fleets", "waits", "candidates"];

const PLAIN: Kind = Kind::Raw { nodelay: false };
const US: Kind = Kind::Ours { background: false };

fn rate(sample: &Sample) -> f64 {
    sample.found.rate
}

fn changes(sample: &Sample) -> f64 {
    sample.found.changes_per_second
}

fn share(sample: &Sample) -> f64 {
    sample.found.process_share.unwrap_or(f64::NAN)
}

fn client(sample: &Sample) -> f64 {
    sample.client_us.unwrap_or(f64::NAN)
}

fn server(sample: &Sample) -> f64 {
    sample.server_us.unwrap_or(f64::NAN)
}
