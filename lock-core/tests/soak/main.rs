//! A run under random faults: processes with callers of every kind, on a server that is stopped, flushed,
//! restarted, replaced by a replica that missed writes, and made to refuse, over connections that break.
//!
//! ```sh
//! cargo test -p lock-core --all-features --test soak                                   # 20 seconds
//! LOCK_SOAK_MINUTES=10 cargo test -p lock-core --all-features --test soak -- --nocapture
//! ```
//!
//! Afterwards: no two holders at once, but where a fault made the server forget; tokens that rose through
//! everything; one ending for each acquire; no key left; and every process still gets locks.
//! `LOCK_TEST_SEED` repeats the choices of a run, as far as the scheduler lets it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test")]

#[path = "../it/support/resource.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod resource;
#[path = "../it/support/worker.rs"]
mod worker;

mod fault;
mod fleet;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lock_core::testing::{Recorder, limit};

use fault::Fault;
use fleet::Fleet;
use resource::Resource;
use servers::Servers;
use worker::Scratch;

/// The lease of most, so short that the longer faults outlast it, and the longest that anybody asks for.
const TTL: Duration = Duration::from_secs(2);
const LONGEST_LEASE: Duration = Duration::from_secs(4);
/// How many processes there are, and how many keys for all of them.
const PROCESSES: usize = 3;
const KEYS: u64 = 5;

/// What the faults strike.
struct World {
    servers: Servers,
    fleet: Fleet,
    /// Writes down when the server forgot on purpose.
    recorder: Recorder,
    random: fastrand::Rng,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(36_000)]
async fn under_random_faults_locks_exclude_and_leave_nothing() {
    let (length, seed) = (length(), seed());
    let scratch = Scratch::new();
    let resource = Resource::start(&scratch.history());
    let servers = Servers::start().await;
    let mut random = fastrand::Rng::with_seed(seed);
    let fleet = Fleet::start(servers.port(), &scratch, &resource, random.fork()).await;
    let mut world = World { servers, fleet, recorder: scratch.recorder(), random };
    let struck = strike(&mut world, length).await;

    let World { servers, fleet, .. } = &mut world;
    // The leases of the killed end by themselves.
    tokio::time::sleep(LONGEST_LEASE).await;
    fleet.assert_all_served().await;
    let tally = fleet.stop().await;
    servers.assert_empty().await;
    let verdict = scratch.verdict();
    println!("figure: soak of {length:?}, faults: {struck:?}");
    println!("figure: soak, answers: {tally:?}");
    println!(
        "figure: soak, {} sections, {} writes, {} violations, {} more while the server forgot on purpose",
        verdict.grants,
        verdict.writes,
        verdict.violations.len(),
        verdict.excused
    );
    assert_eq!(verdict.violations, [], "LOCK_TEST_SEED={seed}");
    assert_eq!(tally.get("acquire-lost"), None, "an acquire lost what it never had, LOCK_TEST_SEED={seed}");
}

/// Lets one or two faults begin, last and end, again and again.
async fn strike(world: &mut World, length: Duration) -> BTreeMap<String, u32> {
    let (started, mut struck) = (Instant::now(), BTreeMap::<String, u32>::new());
    let mut forgot = Instant::now();
    while started.elapsed() < length {
        let calm = Duration::from_millis(world.random.u64(20..900));
        tokio::time::sleep(calm).await;
        // Between two that make the server forget, there is time for exclusion to be seen.
        let may_forget = forgot.elapsed() > 2 * LONGEST_LEASE;
        let first = Fault::any(&mut world.random, may_forget);
        let second = world.random.bool().then(|| Fault::beside(first, &mut world.random));
        let faults: Vec<Fault> = [Some(first), second].into_iter().flatten().collect();
        for fault in &faults {
            println!("{:>8.3?} {fault:?}", started.elapsed());
            *struck.entry(fault.name()).or_default() += 1;
            fault.begin(world).await;
        }
        let longest = if world.random.bool() { 300 } else { 3_000 };
        let lasts = Duration::from_millis(world.random.u64(5..longest));
        tokio::time::sleep(lasts).await;
        for fault in faults.iter().rev() {
            fault.end(world).await;
        }
        if first.forgets() {
            forgot = Instant::now();
        }
    }
    struck
}

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
