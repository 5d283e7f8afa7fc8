//! Many locks held: what it costs to renew them.

use std::time::Duration;

use crate::bench::Bench;
use crate::hold::{Held, Hold};
use crate::job::Job;
use crate::outcome::{Figure, Outcome};
use crate::stats::{percentile, ratio};
use crate::target::Target;
use crate::wire::Go;
use crate::worker::Worker;
use crate::{Result, clock};

/// A script that takes longer than this, in µs, is too slow.
const SLOW_US: u64 = 500;

/// 100,000 locks of 30 s, over two rounds of renewal. Quicker scales do as many renewals per
/// second.
///
/// The server times scripts by the clock, so the slowest ones include other work of the machine. The
/// table also shows how long the server waited for a processor.
pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let locks: u32 = bench.scale.pick(100_000, 10_000, 500);
    let ttl_ms = bench.scale.pick(30_000, 3_000, 3_000);
    let window = Duration::from_millis(bench.scale.pick(20_000, 2_000, 1_200));
    let rounds = bench.scale.pick(bench.rounds.min(2), 1, 1);
    let [mut client, mut server, mut both, mut memory] = [const { Vec::new() }; 4];
    let [mut p50, mut p99, mut over, mut slowest, mut renewals, mut waited] = [const { Vec::new() }; 6];
    let mut lost = 0;
    for _ in 0..rounds {
        bench.server.flush()?;
        let mut worker = Worker::start(&Job::Hold(Hold { port: bench.server.port(), locks, ttl_ms }))?;
        worker.wait_ready()?;
        let from = clock::now() + clock::as_nanos(Duration::from_millis(20));
        let go = Go { from, to: from + clock::as_nanos(window) };
        bench.server.watch_scripts()?;
        worker.tell(&go)?;
        std::thread::sleep(clock::until(go.from));
        let before = bench.server.sample()?;
        std::thread::sleep(clock::until(go.to));
        let after = bench.server.sample()?;
        let count = after.scripts_since(&before) as f64;
        let mut scripts = bench.server.slow_scripts()?;
        let held: Held = worker.answer()?;
        scripts.sort_unstable();
        let percent = |micros: f64| micros / 1e6 / window.as_secs_f64() * 100.0;
        client.push(percent(held.cpu as f64 / 1e3));
        server.push(percent(after.cpu - before.cpu));
        both.push(percent(held.cpu as f64 / 1e3 + after.cpu - before.cpu));
        memory.push(held.bytes_per_lock);
        waited.push(percent(after.kept_waiting - before.kept_waiting));
        p50.push(percentile(&scripts, 500) as f64 / 1e3);
        p99.push(percentile(&scripts, 990) as f64 / 1e3);
        let slow = scripts.iter().filter(|micros| **micros > SLOW_US).count() as f64;
        over.push(ratio(slow * 100.0, count).unwrap_or(0.0));
        slowest.push(percentile(&scripts, 1000) as f64 / 1e3);
        renewals.push(count / window.as_secs_f64());
        lost += held.lost;
    }
    let figures = vec![
        Figure::new("locks held", "", vec![f64::from(locks)]),
        Figure::new("ttl", "s", vec![ttl_ms as f64 / 1e3]),
        Figure::new("client, of one core", "%", client),
        Figure::new("server, of one core", "%", server),
        Figure::new("both, of one core", "%", both),
        Figure::new("server ready, without a core", "%", waited),
        Figure::new("scripts per second", "", renewals),
        Figure::new("script p50", "ms", p50),
        Figure::new("script p99", "ms", p99),
        Figure::new("scripts over 0.5 ms", "%", over),
        Figure::new("slowest script", "ms", slowest),
        Figure::new("client memory per lock", "B", memory),
    ];
    let value = |name: &str| figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.median);
    let targets = vec![
        Target::at_most("client and server, % of one core", value("both, of one core"), 3.0),
        Target::at_most("slowest script, ms", value("slowest script"), 0.5),
        Target::at_most("client memory per lock, B", value("client memory per lock"), 1024.0),
        Target::at_most("locks lost", Some(f64::from(u32::try_from(lost)?)), 0.0),
    ];
    Ok(Outcome { figures, targets, ..Outcome::default() })
}
