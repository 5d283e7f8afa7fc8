//! Pairs and hand-offs, each right beside the bare requests that it is compared with.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use lock_core::{LockGuard, LockManager};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::process::job::Statements;
use crate::row::kubernetes::bare::{Leases, holder};
use crate::row::kubernetes::{TTL, manager};
use crate::row::pairs::{Pairs, rate};
use crate::stats::percentile;
use crate::{Failure, Result, clock};

const TASKS: usize = 64;

/// How long a waiter has to ask for a lock and hear that it is taken. After its own release, a process lets others go first for up to 30 ms.
/// That time is over by then.
const SETTLES: Duration = Duration::from_millis(50);

/// One way to take and free locks.
#[derive(Clone)]
pub(super) enum Line {
    /// A Lease is created and deleted: the least that a lock needs if no Lease stays.
    Made(Leases),
    /// A Lease that stays gets a holder and loses it, as candidates of client-go do. Each task has a Lease of its own.
    Kept(Leases, Arc<Mutex<Option<Lease>>>),
    Ours(LockManager),
    /// This library, with a name that no process has locked before.
    New(LockManager),
}

impl Pairs for Line {
    async fn pair(&self, task: u64, turn: u64) -> Result<()> {
        match self {
            Self::Made(leases) => {
                let name = format!("made-{task}");
                leases.create(&name).await?;
                leases.delete(&name).await?;
            }
            Self::Kept(leases, kept) => {
                let mut kept = kept.lock().await;
                let lease = kept.take().ok_or("an earlier pair failed")?;
                let held = leases.update(lease, "bench").await?;
                *kept = Some(leases.update(held, "").await?);
            }
            // One key for each task: a Lease stays, so later pairs of a key are what a program pays for.
            Self::Ours(locks) => {
                locks.lock(format!("pair-{task}")).await?.release().await?;
            }
            Self::New(locks) => {
                locks.lock(format!("new-{turn}")).await?.release().await?;
            }
        }
        Ok(())
    }
}

impl Line {
    /// Returns the same line for another task.
    async fn of(&self, task: usize, job: &Statements) -> Result<Self> {
        Ok(match self {
            Self::Kept(leases, _) => {
                let lease = leases.create(&format!("kept-{}-{task}", job.first)).await?;
                Self::Kept(leases.clone(), Arc::new(Mutex::new(Some(lease))))
            }
            line => line.clone(),
        })
    }
}

/// Returns every line. The last one is not for many tasks.
pub(super) async fn lines(job: &Statements) -> Result<[Line; 4]> {
    let (leases, locks) = (Leases::open(&job.url).await?, manager(&job.url, TTL).await?);
    Ok([Line::Made(leases.clone()), Line::Kept(leases, Arc::default()), Line::Ours(locks.clone()), Line::New(locks)])
}

/// Returns the median of a pair of each line, µs.
pub(super) async fn pairs(job: &Statements, lines: &[Line; 4]) -> Result<[f64; 4]> {
    let mut own = Vec::new();
    for line in lines {
        let line = line.of(TASKS, job).await?;
        // The first pair connects.
        line.pair(0, u64::MAX).await?;
        own.push(line);
    }
    let mut times: [Vec<u64>; 4] = Default::default();
    for step in 0..job.steps {
        // Each step begins with another line, so that a line does not always follow the same one.
        for place in 0..own.len() {
            let at = (place + usize::try_from(step)?) % own.len();
            let started = clock::now();
            own[at].pair(0, step.into()).await?;
            times[at].push(clock::now() - started);
        }
    }
    Ok(times.map(middle))
}

/// Returns how many pairs per second many tasks do, for each line but the last.
pub(super) async fn crowd(job: &Statements, lines: &[Line; 4]) -> Result<[f64; 3]> {
    let mut rates = [0.0; 3];
    for place in 0..rates.len() {
        let at = (place + usize::try_from(job.first)?) % rates.len();
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            tasks.push(lines[at].of(task, job).await?);
        }
        // Every task connects, and our Leases are there from now on.
        rate(tasks.iter().cloned(), 10).await?;
        rates[at] = rate(tasks, job.window_ms).await?;
    }
    Ok(rates)
}

/// Medians, µs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct HandOffs {
    /// From an update that frees a Lease until the watch of another client tells of it.
    pub(super) watched: f64,
    /// The same, until that client has the answer to the update with which it takes the Lease.
    pub(super) bare: f64,
    /// From the call of a release to the guard of a waiter of another manager.
    pub(super) ours: f64,
    /// How many tokens were not greater than the one before.
    pub(super) inversions: u64,
}

pub(super) async fn hand_offs(job: &Statements) -> Result<HandOffs> {
    let (one, other) = (Leases::open(&job.url).await?, Leases::open(&job.url).await?);
    let (here, there) = (manager(&job.url, TTL).await?, manager(&job.url, TTL).await?);
    let mut lease = one.create(&format!("watched-{}", job.first)).await?;
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    let mut events = pin!(other.api().watch(&WatchParams::default(), &version).await?);
    let (mut guard, mut times, mut inversions) = (here.lock("handed").await?, [const { Vec::new() }; 3], 0);
    for step in 0..job.steps {
        // The server and its connections are as idle as before a hand-off of this library.
        sleep(SETTLES).await;
        let started = clock::now();
        let heard = async {
            let free = next(&mut events, "").await?;
            let watched = clock::now();
            let taken = other.update(free, "other").await?;
            Ok::<_, Failure>((watched, clock::now(), taken))
        };
        let (_, (watched, answered, taken)) = tokio::try_join!(one.update(lease, ""), heard)?;
        times[0].push(watched - started);
        times[1].push(answered - started);
        next(&mut events, "other").await?;
        lease = taken;

        let waiter = waiting(if step % 2 == 0 { &there } else { &here }).await;
        let (before, started) = (guard.token(), clock::now());
        let release = async { Ok::<_, Failure>(guard.release().await?) };
        (_, guard) = tokio::try_join!(release, async { waiter.await? })?;
        times[2].push(clock::now() - started);
        inversions += u64::from(guard.token() <= before);
    }
    guard.release().await?;
    let [watched, bare, ours] = times.map(middle);
    Ok(HandOffs { watched, bare, ours, inversions })
}

/// Waits for the event with which a Lease has this holder.
async fn next(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<Lease>>> + Unpin),
    wanted: &str,
) -> Result<Lease> {
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Modified(lease) if holder(&lease) == wanted => return Ok(lease),
            WatchEvent::Error(status) => return Err(format!("the watch has ended: {}", status.message).into()),
            _ => {}
        }
    }
    Err("the watch has ended".into())
}

/// Lets a manager wait for the lock, and returns when it has been told that the lock is taken.
async fn waiting(locks: &LockManager) -> JoinHandle<Result<LockGuard>> {
    let request = locks.lock("handed");
    let waiter = tokio::spawn(async move { Ok(request.await?) });
    sleep(SETTLES).await;
    waiter
}

fn middle(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    percentile(&times, 500) as f64 / 1e3
}
