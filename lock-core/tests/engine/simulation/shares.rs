//! How many of the grants each process gets, where all want permits all the time, and how long writers wait among readers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockManager, MemoryStore};
use lock_testing::limit;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::{MS, SECOND};

const PROCESSES: u64 = 4;
const TASKS: usize = 16;

/// A process of its own, over a network that is so many times slower.
fn manager(store: &Arc<MemoryStore>, number: u64, slower: u32) -> LockManager {
    let mut network = Network::new(Arc::clone(store), number, 0);
    network.slower = slower;
    let locks = LockManager::builder_shared(Arc::new(network)).with_wait(3600 * SECOND);
    locks.drive_on_current_runtime().build().unwrap()
}

fn on_virtual_time<T>(work: impl Future<Output = T>) -> T {
    fastrand::seed(0);
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// Returns how many grants each process gets within a time, if all of them are so many times slower.
fn grants(slower: u32, permits: u32, within: Duration) -> Vec<usize> {
    on_virtual_time(async {
        let store = Arc::new(MemoryStore::new());
        let process = |number| {
            let locks = manager(&store, number, slower);
            let count = Arc::new(AtomicUsize::new(0));
            for _ in 0..TASKS {
                tokio::spawn(work(locks.clone(), permits, Arc::clone(&count)));
            }
            count
        };
        let counts: Vec<_> = (0..PROCESSES).map(process).collect();
        sleep(within).await;
        counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    })
}

async fn work(locks: LockManager, permits: u32, count: Arc<AtomicUsize>) {
    loop {
        let guard = locks.semaphore("k", permits).await.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
        sleep(MS).await;
        guard.release().await.unwrap();
    }
}

/// Processes that want the same get the same, however long a grant and a claim are on their way.
#[test]
#[limit(300)]
fn no_process_gets_less_of_the_permits_because_all_of_them_are_slow() {
    for (slower, permits) in [(4, 4), (8, 4), (8, 16)] {
        let counts = grants(slower, permits, 2 * SECOND);
        let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
        println!("figure: {permits} permits, {slower} times slower: {counts:?}");
        assert!(least * 10 >= most * 9, "{permits} permits, {slower} times slower: {counts:?}");
    }
}

/// One stay at the lock.
struct Stay {
    asked: Instant,
    entered: Instant,
    writes: bool,
}

/// Has every task read, and write once in twenty times, for a while.
fn reading(slower: u32, within: Duration) -> Vec<Stay> {
    let stays = Arc::new(Mutex::new(Vec::new()));
    on_virtual_time(async {
        let store = Arc::new(MemoryStore::new());
        for number in 0..PROCESSES {
            let locks = manager(&store, number, slower);
            for task in 0..TASKS as u64 {
                let (locks, stays) = (locks.clone(), Arc::clone(&stays));
                let mut random = fastrand::Rng::with_seed(number * 100 + task);
                tokio::spawn(async move {
                    loop {
                        let (asked, writes) = (Instant::now(), random.u8(0..100) < 5);
                        let request = if writes { locks.write("k") } else { locks.read("k") };
                        let guard = request.await.unwrap();
                        stays.lock().unwrap().push(Stay { asked, entered: Instant::now(), writes });
                        sleep(MS).await;
                        guard.release().await.unwrap();
                    }
                });
            }
        }
        sleep(within).await;
    });
    Arc::into_inner(stays).unwrap().into_inner().unwrap()
}

/// Returns the wait of writers, p99, divided by what explains it: for each writer before it and for itself one hold and one
/// phase of readers, and so many trips as each of these costs.
fn writers_wait(stays: &[Stay], trip: Duration, trips: impl Fn(u32) -> u32) -> f64 {
    let writers: Vec<&Stay> = stays.iter().filter(|stay| stay.writes).collect();
    let of_bound = |(place, writer): (usize, &&Stay)| {
        let ahead = writers[..place].iter().rev().take_while(|before| before.entered > writer.asked).count();
        let turns = 2 * (u32::try_from(ahead).unwrap() + 1);
        (writer.entered - writer.asked).as_secs_f64() / (turns * MS + trips(turns) * trip).as_secs_f64()
    };
    let mut waits: Vec<f64> = writers.iter().enumerate().map(of_bound).collect();
    waits.sort_unstable_by(f64::total_cmp);
    waits[(waits.len() * 99).div_ceil(100) - 1]
}

/// A writer waits for turns, and each turn costs a trip, even if every caller is slow. A bound with three trips for all
/// turns together holds only where a trip is short beside a hold.
#[test]
#[limit(300)]
fn a_writer_waits_for_so_many_turns_and_their_trips_however_slow_all_of_them_are() {
    for slower in [1, 4, 8] {
        let stays = reading(slower, 4 * SECOND);
        // A release and the grant that it gives, each for 2 ms at most.
        let trip = 4 * MS * slower;
        let (three, each) = (writers_wait(&stays, trip, |_| 3), writers_wait(&stays, trip, |turns| turns + 1));
        println!(
            "figure: {} stays, {slower} times slower: p99 of writers {three:.2} of 3 trips, {each:.2} of one a turn",
            stays.len()
        );
        assert!(each <= 1.0, "{slower} times slower: {each}");
    }
}
