//! Three processes of Java and three of Rust increment one number by reading it and writing it back, with nothing but the lock to keep
//! them apart. Some of them are killed at any moment. The number is in the end how often it was written.
//!
//! `LOCK_REDISSON_MINUTES=10 cargo test -p lock-redisson --test counter` goes on for so long.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may panic, and live in real time")]

#[path = "../it/redisson.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod redisson;
#[path = "../it/support.rs"]
#[allow(dead_code, unreachable_pub, reason = "the other tests use more of it")]
mod support;
mod worker;

use std::env;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_testing::{RedisServer, within};

use crate::redisson::Redisson;
use crate::support::SECOND;

/// How long a lock outlives its holder.
const LEASE: Duration = Duration::from_secs(4);

/// How often each kind must at least have written, and been killed, where nobody says for how long.
const WRITES: u64 = 20;
const KILLS: u64 = 2;

fn main() {
    if let Ok(url) = env::var("LOCK_REDISSON_WORKER") {
        return worker::work(&url);
    }
    let name = "three_processes_of_java_and_three_of_rust_count_exactly_under_kills";
    let minutes = env::var("LOCK_REDISSON_MINUTES").ok().map(|text| text.parse::<u64>().unwrap());
    let time = minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let ran = within(name, time.unwrap_or_default() + Duration::from_secs(240), move || run(time));
    if ran {
        println!("{name}: passed");
    }
}

/// The events so far.
#[derive(Default)]
struct Tally {
    ended: AtomicBool,
    java_killed: AtomicU64,
    java_misses: AtomicU64,
}

fn number(server: &RedisServer, key: &str) -> u64 {
    match server.command(&["GET", key]) {
        lock_testing::Reply::Text(text) => text.parse().unwrap(),
        _ => 0,
    }
}

fn run(time: Option<Duration>) -> bool {
    let server = Arc::new(RedisServer::start());
    let Some(first) = Redisson::start(&server.url(), LEASE) else { return false };
    let (tally, mut first, begun) = (Arc::new(Tally::default()), Some(first), Instant::now());
    let java: Vec<_> = (0..3u64)
        .map(|seed| {
            let (server, tally, first) = (Arc::clone(&server), Arc::clone(&tally), first.take());
            thread::spawn(move || java(&server, &tally, first, seed))
        })
        .collect();
    let start = || {
        let mut worker = Command::new(env::current_exe().unwrap());
        worker.env("LOCK_REDISSON_WORKER", server.url()).stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut workers: Vec<Child> = (0..3).map(|_| start()).collect();
    let (mut rust_killed, mut random) = (0, random_of(7));
    let counts = || [number(&server, "java"), number(&server, "rust")];
    loop {
        thread::sleep(Duration::from_millis(300 + random() % 1500));
        let at = usize::try_from(random() % 3).unwrap();
        for worker in &mut workers {
            if let Some(status) = worker.try_wait().unwrap() {
                panic!("a process of Rust has ended by itself: {status}");
            }
        }
        workers[at].kill().unwrap();
        workers[at].wait().unwrap();
        workers[at] = start();
        rust_killed += 1;
        let enough = counts().iter().all(|writes| *writes >= WRITES)
            && rust_killed >= KILLS
            && tally.java_killed.load(Ordering::Relaxed) >= KILLS;
        if time.map_or(enough, |time| begun.elapsed() >= time) {
            break;
        }
    }
    tally.ended.store(true, Ordering::Relaxed);
    for thread in java {
        thread.join().unwrap();
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let ([java, rust], counter) = (counts(), number(&server, "counter"));
    println!(
        "{} s: {java} writes of Java, {rust} of Rust, counter {counter}; killed: {} of Java, {rust_killed} of Rust; {} turns of Java missed",
        begun.elapsed().as_secs(),
        tally.java_killed.load(Ordering::Relaxed),
        tally.java_misses.load(Ordering::Relaxed),
    );
    assert_eq!(counter, java + rust, "a write was lost");
    true
}

/// Drives a process of Java: acquires, reads, writes, releases. Now and then it is killed, and so is the turn that it was in.
fn java(server: &RedisServer, tally: &Tally, first: Option<Redisson>, seed: u64) {
    let (mut random, mut process) = (random_of(seed + 1), first);
    while !tally.ended.load(Ordering::Relaxed) {
        let mut redisson = process.take().unwrap_or_else(|| Redisson::start(&server.url(), LEASE).unwrap());
        let dies = random() % 25;
        if !redisson.acquires("k", 20 * SECOND) {
            tally.java_misses.fetch_add(1, Ordering::Relaxed);
            process = Some(redisson);
            continue;
        }
        let read = number(server, "counter");
        if dies != 0 && redisson.does(r#"{"check": true}"#) {
            worker::write(server, read + 1, "java");
        }
        if dies <= 1 {
            // Before its write, or after it.
            redisson.kill();
            tally.java_killed.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        redisson.releases();
        process = Some(redisson);
    }
}

/// Numbers that look random.
fn random_of(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }
}
