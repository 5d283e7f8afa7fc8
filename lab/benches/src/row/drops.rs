//! Guards that are dropped as fast as they are acquired, without awaiting a release. The store frees locks more slowly than that.

use std::time::{Duration, Instant};

use lock_core::{LockManager, RedisStore};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::contestant::TTL_MS;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::job::{Drops, Job};
use crate::process::wire::say;
use crate::process::worker;
use crate::{Result, clock};

/// The interval of memory readings.
const LOOK: Duration = Duration::from_millis(10);
/// How many guards are dropped before memory is measured. Pools and tables reach their size meanwhile.
const WARM_UP: u32 = 10_000;

/// How long to wait until dropped locks are gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// 64 tasks drop a million guards.
pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let guards = bench.scale.pick(1_000_000, 200_000, 6_400);
    let rounds = bench.scale.pick(bench.rounds.min(2), 1, 1);
    let [mut memory, mut rate, mut outlived] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        bench.server().flush()?;
        let mut worker = worker::start(&Job::Drops(Drops { port: bench.port(), tasks: 64, guards }))?;
        let dropped: Dropped = worker.answer()?;
        let ended = Instant::now();
        // One key stays: the clock, which is the source of tokens.
        while bench.server().keys()? > 1 && ended.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        outlived.push(ended.elapsed().as_secs_f64());
        memory.push(dropped.bytes as f64 / f64::from(1 << 20));
        rate.push(f64::from(guards) / dropped.seconds);
    }
    let figures = vec![
        Figure::new("guards dropped", "", vec![f64::from(guards)]),
        Figure::new("guards dropped per second", "", rate),
        Figure::new("most memory above idle", "MiB", memory),
        Figure::new("last lock outlives the run by", "s", outlived),
    ];
    let targets = vec![
        Target::at_most("most memory above idle, MiB", figures[2].median, 32.0),
        Target::at_most("last lock outlives the run by, s", figures[3].median, 1.0),
    ];
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

/// The cost of the drops, measured when the last guard was dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) seconds: f64,
    /// The peak of memory, above that of the idle process.
    pub(crate) bytes: u64,
}

/// Drops the guards in a process of its own.
pub(crate) fn drop_guards(drops: &Drops) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}/", drops.port))?;
    let locks = LockManager::builder(store).with_ttl(Duration::from_millis(TTL_MS)).build()?;
    runtime.block_on(drop_all(&locks, "warm", drops.tasks, WARM_UP.min(drops.guards)))?;
    std::thread::sleep(Duration::from_millis(500));
    let idle = clock::resident()?;
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let peak = std::thread::spawn(move || {
        let mut peak = idle;
        while is_over.recv_timeout(LOOK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            peak = peak.max(clock::resident().unwrap_or(0));
        }
        peak
    });
    let began = Instant::now();
    runtime.block_on(drop_all(&locks, "drop", drops.tasks, drops.guards))?;
    let seconds = began.elapsed().as_secs_f64();
    drop(over);
    let bytes = peak.join().map_err(|_| "a thread of the benchmark panicked")?.saturating_sub(idle);
    say(&serde_json::to_string(&Dropped { seconds, bytes })?)?;
    // Keeps this process alive until the benchmark has seen the last lock go. The runtime that took the locks stays
    // idle meanwhile.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

async fn drop_all(locks: &LockManager, name: &'static str, tasks: u32, guards: u32) -> Result<()> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let locks = locks.clone();
        running.spawn(async move {
            for number in 0..guards / tasks {
                drop(locks.lock(format!("bench:{name}:{task}:{number}")).await?);
            }
            Ok::<_, lock_core::LockError>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
