//! The rows: their measurements and targets.

pub(crate) mod crowd;
mod distinct;
pub(crate) mod drops;
pub(crate) mod fleets;
mod growth;
mod hot;
pub(crate) mod kubernetes;
pub(crate) mod memory;
mod others;
mod pairs;
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

const fn row(name: &'static str, about: &'static str, run: fn(&mut Bench) -> Result<Outcome>) -> Row {
    Row { name, about, run }
}

impl Row {
    pub(crate) fn measure(&self, bench: &mut Bench) -> Result<Outcome> {
        (self.run)(bench).map_err(|error| format!("row {}: {error}", self.name).into())
    }
}

/// Every row, in the order of the table.
pub(crate) const ROWS: [Row; 18] = [
    row("idle", "latency: 1 task, distinct keys", distinct::idle),
    row("many", "throughput: many tasks, distinct keys", distinct::many),
    row("hot", "one hot key: 1 process of 64 tasks, hold 0", hot::process),
    row("fleet", "one hot key: 4 processes of 16 tasks", hot::fleet),
    row("remote", "one hot key: 4 processes of 1 task, hold 0, a round trip of 5 ms or more", hot::remote),
    row("shared", "readers, permits and segments: 4 processes of 16 tasks, hold 1 ms, beside one lock", shared::run),
    row("stores", "replicas and clusters beside one server: 64 tasks, distinct keys", stores::run),
    row("quorum", "quorums of three and five beside their members: 1 task", stores::quorum),
    row("postgres", "PostgreSQL: locks beside the statements that they are made of", postgres::run),
    row("zookeeper", "ZooKeeper: locks beside the requests that they are made of, and beside Curator", zookeeper::run),
    row("kubernetes", "Kubernetes: locks beside the requests that they are made of", kubernetes::run),
    row("watchdog", "many locks held and renewed", watchdog::run),
    row("drops", "guards dropped as fast as they come, by 64 tasks", drops::run),
    row("memory", "without a server: the attribute beside the guard API, and metrics", memory::run),
    row("growth", "few and many keys, few and many waiters", growth::run),
    row(
        "fleets",
        "one hot key: 10, 100 and 1,000 managers with connections of their own; a server goes away",
        fleets::run,
    ),
    row("waits", "400 managers that wait for each of 20 locks, one for 20,000", waits::locks),
    row("candidates", "2,000 managers that stand for one election", waits::candidates),
];

/// The rows of `--peers`, which need other libraries.
pub(crate) static PEERS: [Row; 6] = [
    row("lonely", "locks of other languages: 1 task", others::lonely),
    row("others", "locks of other languages: 64 tasks", others::many),
    row("others-hot", "one hot key: 1 process of 64 tasks", others::hot::<1, 0>),
    row("others-hot-1ms", "one hot key: 1 process of 64 tasks", others::hot::<1, 1>),
    row("others-fleet", "one hot key: 4 processes of 16 tasks", others::hot::<4, 0>),
    row("others-fleet-1ms", "one hot key: 4 processes of 16 tasks", others::hot::<4, 1>),
];

/// The rows of `--fleets`.
pub(crate) const FLEETS: [&str; 3] = ["fleets", "waits", "candidates"];

const PLAIN: Kind = Kind::Raw { nodelay: false };
/// The mutex of distkit. Its owner is the mutex, so all tasks of a process can share it.
const MUTEX: Kind = Kind::Distkit { reads: false, owners: 1 };
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
