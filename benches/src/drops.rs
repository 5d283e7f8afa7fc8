//! The work of the drops row: guards are dropped as fast as they come, and nobody awaits a release.

use std::time::{Duration, Instant};

use lock_core::{LockManager, RedisStore};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::contestant::TTL_MS;
use crate::wire::say;
use crate::{Result, clock};

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How many guards are dropped before memory is measured: pools and tables grow to their size.
const WARM_UP: u32 = 10_000;

/// How many guards to drop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drops {
    pub(crate) port: u16,
    pub(crate) tasks: u32,
    pub(crate) guards: u32,
}

/// What dropping them cost, when the last of them was dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) seconds: f64,
    /// The most memory at any moment, above that of the idle process.
    pub(crate) bytes: u64,
}

pub(crate) fn run(drops: &Drops) -> Result<()> {
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
    // Until the benchmark has seen the last lock go, with the runtime that took the locks idle.
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
