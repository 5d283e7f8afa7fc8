//! The cost of renewing many held locks.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockGuard, LockManager, RedisStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::job::{Hold, Job};
use crate::process::wire::{Go, hear, say};
use crate::process::worker;
use crate::{Result, clock};

/// 100,000 locks of 30 s, over two rounds of renewal. Quicker scales have the same number of renewals per second.
pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let locks: u32 = bench.scale.pick(100_000, 10_000, 500);
    let ttl_ms = bench.scale.pick(30_000, 3_000, 3_000);
    let window = Duration::from_millis(bench.scale.pick(20_000, 2_000, 1_200));
    let rounds = bench.scale.pick(bench.rounds.min(2), 1, 1);
    let [mut client, mut server, mut both, mut memory] = [const { Vec::new() }; 4];
    let mut outcome = Outcome::default();
    for _ in 0..rounds {
        bench.server().flush()?;
        let mut worker = worker::start(&Job::Hold(Hold { port: bench.port(), locks, ttl_ms }))?;
        worker.wait_ready()?;
        let from = clock::now() + clock::as_nanos(Duration::from_millis(20));
        let go = Go { from, to: from + clock::as_nanos(window) };
        worker.tell(&go)?;
        std::thread::sleep(clock::until(go.from));
        let before = bench.server().cpu()?;
        std::thread::sleep(clock::until(go.to));
        let used = bench.server().cpu()? - before;
        let held: Held = worker.answer()?;
        let percent = |micros: f64| micros / 1e6 / window.as_secs_f64() * 100.0;
        client.push(percent(held.cpu as f64 / 1e3));
        server.push(percent(used));
        both.push(percent(held.cpu as f64 / 1e3 + used));
        memory.push(held.bytes_per_lock);
        *outcome.faults.entry("locks lost").or_default() += held.lost;
    }
    outcome.figures = vec![
        Figure::new("locks held", "", vec![f64::from(locks)]),
        Figure::new("ttl", "s", vec![ttl_ms as f64 / 1e3]),
        Figure::new("client, of one core", "%", client),
        Figure::new("server, of one core", "%", server),
        Figure::new("both, of one core", "%", both),
        Figure::new("client memory per lock", "B", memory),
    ];
    outcome.targets = vec![
        Target::at_most("client and server, % of one core", outcome.figures[4].median, 3.0),
        Target::at_most("client memory per lock, B", outcome.figures[5].median, 1024.0),
    ];
    Ok(outcome)
}

/// How many acquires run at once.
const AT_A_TIME: usize = 256;
/// How many locks are taken and released before memory is measured. Pools and tables reach their size meanwhile.
const WARM_UP: u32 = 1000;

/// The cost of the held locks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Processor time within the window, ns.
    pub(crate) cpu: u64,
    /// Resident memory for each lock.
    pub(crate) bytes_per_lock: f64,
    /// How many locks were no longer held at the end.
    pub(crate) lost: u64,
}

/// Holds the locks in a process of its own.
pub(crate) fn hold(hold: &Hold) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}/", hold.port))?;
    let locks = LockManager::builder(store).with_ttl(Duration::from_millis(hold.ttl_ms)).build()?;
    runtime.block_on(take(&locks, "warm", WARM_UP.min(hold.locks)))?;
    // The guards were dropped. Their locks are released within this time.
    std::thread::sleep(Duration::from_millis(300));
    let before = clock::resident()?;
    let guards = runtime.block_on(take(&locks, "held", hold.locks))?;
    let after = clock::resident()?;
    say("ready")?;
    let go: Go = hear()?;
    runtime.block_on(async {
        tokio::time::sleep(clock::until(go.from)).await;
        let cpu = clock::cpu();
        tokio::time::sleep(clock::until(go.to)).await;
        let held = Held {
            cpu: clock::cpu() - cpu,
            bytes_per_lock: after.saturating_sub(before) as f64 / f64::from(hold.locks),
            lost: u64::try_from(guards.iter().filter(|guard| guard.ensure_held().is_err()).count())?,
        };
        say(&serde_json::to_string(&held)?)
    })?;
    // Releasing a hundred thousand locks is not measured, and the benchmark empties the server anyway.
    std::process::exit(0)
}

async fn take(locks: &LockManager, name: &str, count: u32) -> Result<Vec<LockGuard>> {
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    let mut tasks = JoinSet::new();
    let mut guards = Vec::with_capacity(usize::try_from(count)?);
    for number in 0..count {
        let permit = Arc::clone(&room).acquire_owned().await?;
        let request = locks.lock(format!("bench:{name}:{number}"));
        tasks.spawn(async move {
            let guard = request.await;
            drop(permit);
            guard
        });
        while let Some(done) = tasks.try_join_next() {
            guards.push(done??);
        }
    }
    while let Some(done) = tasks.join_next().await {
        guards.push(done??);
    }
    Ok(guards)
}
