//! The work of the watchdog row: it holds many locks and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockGuard, LockManager, RedisStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::wire::{Go, hear, say};
use crate::{Result, clock};

/// How many locks are requested at a time.
const AT_A_TIME: usize = 256;
/// How many locks are taken and released before memory is measured: pools and tables grow to their
/// size.
const WARM_UP: u32 = 1000;

/// Which locks to hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) port: u16,
    pub(crate) locks: u32,
    pub(crate) ttl_ms: u64,
}

/// What holding them cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Processor time within the window, ns.
    pub(crate) cpu: u64,
    /// Resident memory for each lock.
    pub(crate) bytes_per_lock: f64,
    /// How many locks were no longer held at the end.
    pub(crate) lost: u64,
}

pub(crate) fn run(hold: &Hold) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}/", hold.port))?;
    let locks = LockManager::builder(store).with_ttl(Duration::from_millis(hold.ttl_ms)).build()?;
    runtime.block_on(take(&locks, "warm", WARM_UP.min(hold.locks)))?;
    // The guards were dropped; their locks are released within this time.
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
    // The release of a hundred thousand locks is not measured; the server is emptied.
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
