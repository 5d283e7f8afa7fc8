//! A run under random faults: processes with callers of every kind, on servers that are stopped, flushed, restarted,
//! replaced by replicas that missed writes, and made to refuse, over connections that break. The locks lie on one
//! server, behind sentinels, in a cluster or in a quorum, a test for each.
//!
//! ```sh
//! cargo test -p lock-core --all-features --test soak                                   # 20 seconds each
//! LOCK_SOAK_MINUTES=10 cargo test -p lock-core --all-features --test soak -- --nocapture
//! LOCK_SOAK_MINUTES=10 cargo test -p lock-core --all-features --test soak -- --nocapture cluster
//! ```
//!
//! Afterwards: no two holders at once, no more permits than there are and no job that ran twice, but where a fault made
//! the servers forget; tokens that rose; one ending for each acquire; no key left; and every process still gets locks.
//! While a server refuses, it answers. `LOCK_TEST_SEED` repeats the choices of a run, as far as the scheduler lets it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test")]

#[path = "../it/support/resource.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod resource;
#[path = "../it/support/worker.rs"]
mod worker;

mod fault;
mod fleet;
mod left;
mod notes;
mod refusal;
mod topology;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use lock_core::testing::{Record, Recorder, limit};

use fault::Fault;
use fleet::Fleet;
use notes::Times;
use refusal::assert_answers;
use resource::Resource;
use topology::{Cluster, Members, One, Sentinels, Topology};
use worker::Scratch;

/// The lease of most, so short that the longer faults outlast it, and the longest that anybody asks for.
const TTL: Duration = Duration::from_secs(2);
const LONGEST_LEASE: Duration = Duration::from_secs(4);
/// How many processes there are, and how many keys for all of them.
const PROCESSES: usize = 3;
const KEYS: u64 = 5;

/// From when to when, as records state it.
type Window = RangeInclusive<u64>;

/// What the faults strike.
struct World {
    servers: Box<dyn Topology>,
    fleet: Fleet,
    /// Writes down when the servers forgot on purpose.
    recorder: Recorder,
    random: fastrand::Rng,
    forgotten: Vec<Window>,
    /// When a server began another history that forgot nothing, and for how long that may be unknown.
    renamed: Vec<Window>,
    /// The longest time after a fault until every process had locks of every kind.
    recovery: Duration,
}

impl World {
    fn excuse(&mut self, from: u64, until: u64) {
        self.forgotten.push(from..=until);
        self.recorder.record(&Record::Excuse { from, until });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(36_000)]
async fn under_random_faults_locks_of_one_server_exclude_and_leave_nothing() {
    soak(|_| Box::new(One::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(36_000)]
async fn under_random_faults_locks_behind_sentinels_exclude_and_leave_nothing() {
    soak(|random| Box::new(Sentinels::start(random.bool()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(36_000)]
async fn under_random_faults_locks_of_a_cluster_exclude_and_leave_nothing() {
    soak(|random| Box::new(Cluster::start(random.bool()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(36_000)]
async fn under_random_faults_locks_of_a_quorum_exclude_and_leave_nothing() {
    soak(|_| Box::new(Members::start())).await;
}

async fn soak(start: impl FnOnce(&mut fastrand::Rng) -> Box<dyn Topology>) {
    let (length, seed) = (length(), seed());
    let mut random = fastrand::Rng::with_seed(seed);
    let scratch = Scratch::new();
    let resource = Resource::start(&scratch.history());
    let servers = start(&mut random);
    let name = servers.name();
    let fleet = Fleet::start(&*servers, &scratch, &resource, random.fork()).await;
    let recorder = scratch.recorder();
    let (forgotten, renamed, recovery) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut world = World { servers, fleet, recorder, random, forgotten, renamed, recovery };
    world.fleet.assert_all_served().await;
    let struck = strike(&mut world, length).await;

    // The leases of the killed end by themselves.
    tokio::time::sleep(LONGEST_LEASE).await;
    let last = world.fleet.assert_all_served().await;
    let tally = world.fleet.stop().await;
    let left = left::after(&*world.servers);
    let verdict = scratch.verdict();
    let times = Times { forgotten: &world.forgotten, renamed: &world.renamed };
    let noted = notes::judge(&std::fs::read_to_string(scratch.path("notes")).unwrap(), &times);
    println!("figure: soak over {name} of {length:?}, faults: {struck:?}");
    println!("figure: soak over {name}, answers: {tally:?}");
    println!(
        "figure: soak over {name}: {} sections, {} writes, {} holds of every mode, {} runs of jobs; {} faults",
        verdict.grants,
        verdict.writes,
        noted.holds,
        noted.runs,
        struck.values().sum::<u32>()
    );
    println!(
        "figure: soak over {name}: {} overlaps, {} older tokens, all but {} while servers forgot on purpose; {} runs \
         again; longest recovery {:?}, the last {last:?}; left: {left:?}",
        noted.overlaps,
        noted.inversions,
        verdict.violations.len() + noted.violations.len(),
        noted.again,
        world.recovery
    );
    assert_eq!(verdict.violations, [], "LOCK_TEST_SEED={seed}");
    assert!(noted.violations.is_empty(), "LOCK_TEST_SEED={seed}: {:#?}", noted.violations);
    assert_eq!(left, [""; 0], "left behind, LOCK_TEST_SEED={seed}");
    assert_eq!(tally.get("acquire-lost"), None, "an acquire lost what it never had, LOCK_TEST_SEED={seed}");
}

/// Lets one or two faults begin, last and end, again and again.
async fn strike(world: &mut World, length: Duration) -> BTreeMap<String, u32> {
    let (name, started, mut struck) = (world.servers.name(), Instant::now(), BTreeMap::<String, u32>::new());
    let mut changed = None::<Instant>;
    while started.elapsed() < length {
        let calm = Duration::from_millis(world.random.u64(20..900));
        tokio::time::sleep(calm).await;
        // Between two that make servers forget, there is time for exclusion to be seen.
        let may_change = changed.is_none_or(|changed| changed.elapsed() > 2 * LONGEST_LEASE);
        let first = Fault::any(&mut world.random, &*world.servers, may_change);
        let second = world.random.bool().then(|| Fault::beside(first, &mut world.random, &*world.servers));
        let faults: Vec<Fault> = [Some(first), second].into_iter().flatten().collect();
        for fault in &faults {
            println!("{name} {:>8.3?} {fault:?}", started.elapsed());
            *struck.entry(fault.name()).or_default() += 1;
            fault.begin(world).await;
        }
        let lasts = first.length(&mut world.random);
        tokio::time::sleep(lasts).await;
        for fault in faults.iter().rev() {
            fault.end(world).await;
        }
        for place in world.servers.serving() {
            assert_answers(world.servers.server(place), &format!("after {first:?}"));
        }
        if matches!(first, Fault::Change(_)) {
            changed = Some(Instant::now());
        }
        // The next fault strikes who recovers from the last as often as not.
        if world.random.bool() {
            let recovery = world.fleet.assert_all_served().await;
            world.recovery = world.recovery.max(recovery);
        }
    }
    struck
}

/// How long each test goes on.
fn length() -> Duration {
    match std::env::var("LOCK_SOAK_MINUTES") {
        Ok(text) => Duration::from_secs_f64(text.parse::<f64>().expect("LOCK_SOAK_MINUTES is a number") * 60.0),
        Err(_) => Duration::from_secs(20),
    }
}

fn seed() -> u64 {
    let seed = match std::env::var("LOCK_TEST_SEED") {
        Ok(text) => text.parse().expect("LOCK_TEST_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("to repeat this: LOCK_TEST_SEED={seed}");
    seed
}
