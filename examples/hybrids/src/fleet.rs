//! Processes that are killed, and stopped for longer than their leases.

use std::env;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_core::LockManager;
use lock_testing::{freeze, thaw};
use tokio::time::{Instant, sleep};

use crate::Fleet;

/// How often a process is killed or stopped.
const EVERY: Duration = Duration::from_millis(400);

/// How long a process stands still.
const STOPPED: Duration = Duration::from_millis(1_500);

/// This program as one of its workers. It ends when its standard input does, at the latest with this process.
fn worker() -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).arg("--worker").stdin(Stdio::piped());
    command.spawn().context("a worker does not start")
}

/// Lets processes work for a time, while one after the other is killed, or stopped if that is asked for. Every second time it strikes the
/// process that has the lock. Returns how often each was done.
pub(crate) async fn run(args: &Fleet, locks: &LockManager, key: &str, stops: bool) -> Result<[u32; 2]> {
    let mut workers = (0..args.processes).map(|_| worker()).collect::<Result<Vec<_>>>()?;
    let (end, mut faults) = (Instant::now() + Duration::from_secs_f64(args.seconds), [0, 0]);
    let mut stopped: Vec<(Instant, u32)> = Vec::new();
    let mut told = std::pin::pin!(tokio::signal::ctrl_c());
    while Instant::now() < end {
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = &mut told => break,
        }
        stopped.retain(|(until, process)| {
            let wakes = *until <= Instant::now();
            if wakes {
                thaw(*process);
            }
            !wakes
        });
        let holder = if fastrand::bool() { locks.holder(key).await.ok().flatten() } else { None };
        let holder = holder.and_then(|holder| Some(holder.info?.pid));
        let place = workers.iter().position(|worker| Some(worker.id()) == holder);
        let unlucky = &mut workers[place.unwrap_or_else(|| fastrand::usize(..args.processes))];
        if stopped.iter().any(|(_, process)| *process == unlucky.id()) {
            continue;
        }
        if stops && fastrand::bool() {
            freeze(unlucky.id());
            stopped.push((Instant::now() + STOPPED, unlucky.id()));
            faults[1] += 1;
        } else {
            unlucky.kill()?;
            unlucky.wait()?;
            *unlucky = worker()?;
            faults[0] += 1;
        }
    }
    stopped.iter().for_each(|(_, process)| thaw(*process));
    for mut worker in workers {
        drop(worker.stdin.take());
        worker.wait()?;
    }
    Ok(faults)
}

/// Resolves when standard input ends.
pub(crate) async fn told_to_end() {
    // The thread ends with the process.
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ = read.await;
}
