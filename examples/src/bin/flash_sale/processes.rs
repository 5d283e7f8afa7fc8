//! Runs the sale in several processes. The parent starts them. Each takes its share of the orders, and writes its
//! results into files beside the ledger.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::args::Args;
use crate::interrupted;
use crate::progress::Progress;
use crate::sale::Takings;
use crate::stopwatch::Times;

const WATCH_EVERY: Duration = Duration::from_millis(50);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The results of one process, for the parent.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Outcome {
    pub(crate) takings: Takings,
    pub(crate) times: Times,
}

/// Returns the share of one of `processes` in a number of items.
pub(crate) fn share(total: u32, processes: u32, worker: u32) -> u32 {
    total / processes + u32::from(worker < total % processes)
}

/// Starts the processes and waits for all of them. The first failure, or Ctrl-C, ends the others.
pub(crate) async fn run(args: &Args, folder: &Path, progress: &Progress) -> Result<Outcome> {
    let mut children = Vec::new();
    for worker in 0..args.processes {
        let child = command(args, folder, worker)?.spawn();
        children.push(child.with_context(|| format!("cannot start process {worker}"))?);
    }
    let ended = tokio::select! {
        ended = watch(&mut children, folder, progress) => ended,
        () = interrupted() => Err(anyhow!("interrupted, the sale is off")),
    };
    if let Err(error) = ended {
        // Waits for the end of each process: none may write into the folder when it is removed. The locks that they
        // held become free when their leases end.
        for child in &mut children {
            let _ = child.kill().await;
        }
        return Err(error);
    }
    collect(args.processes, folder)
}

/// Follows the processes until all have succeeded or one has failed.
async fn watch(children: &mut [Child], folder: &Path, progress: &Progress) -> Result<()> {
    loop {
        let (mut running, mut answered) = (false, 0);
        for (worker, child) in (0..).zip(children.iter_mut()) {
            match child.try_wait().with_context(|| format!("cannot wait for process {worker}"))? {
                None => running = true,
                Some(status) if status.success() => {}
                Some(status) => bail!("process {worker} failed with {status}; its message is above"),
            }
            answered += told(folder, worker).unwrap_or(0);
        }
        progress.reach(answered);
        if !running {
            return Ok(());
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// Reads the progress of a process, if it has reported any.
fn told(folder: &Path, worker: u32) -> Option<usize> {
    fs::read_to_string(progress_file(folder, worker)).ok()?.parse().ok()
}

/// Reports the progress of this process to the parent, for as long as the future is awaited.
pub(crate) async fn report_progress(worker: u32, folder: &Path, progress: &Progress) {
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        // Optional: without it the parent shows an older number.
        let _ = fs::write(progress_file(folder, worker), progress.get().to_string());
    }
}

/// Passes the results of this process to the parent.
pub(crate) fn hand_over(worker: u32, folder: &Path, outcome: &Outcome) -> Result<()> {
    fs::write(progress_file(folder, worker), outcome.takings.answers.len().to_string())?;
    let text = serde_json::to_vec(outcome)?;
    let file = outcome_file(folder, worker);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn command(args: &Args, folder: &Path, worker: u32) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command
        .arg(format!("--processes={}", args.processes))
        .arg(format!("--buyers={}", args.buyers))
        .arg(format!("--worker={worker}"))
        .arg("--ledger")
        .arg(folder)
        // Passed in the environment: the URL may contain a password, and every user can list the arguments of a process.
        .env("LOCK_URL", &args.store)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    if let Some(orders) = args.orders {
        command.arg(format!("--orders={orders}"));
    }
    if let Some(data) = &args.data {
        command.arg("--data").arg(data);
    }
    if args.without_lock {
        command.arg("--without-lock");
    }
    Ok(command)
}

fn collect(processes: u32, folder: &Path) -> Result<Outcome> {
    let read = |worker| -> Result<Outcome> {
        let file = outcome_file(folder, worker);
        let text =
            fs::read(&file).with_context(|| format!("process {worker} left no outcome in {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("the outcome of process {worker} is garbled"))
    };
    let mut all = read(0)?;
    for worker in 1..processes {
        let Outcome { takings, times } = read(worker)?;
        all.takings.answers.extend(takings.answers);
        all.takings.opened = all.takings.opened.min(takings.opened);
        all.takings.closed = all.takings.closed.max(takings.closed);
        all.times.add(times);
    }
    Ok(all)
}

fn progress_file(folder: &Path, worker: u32) -> PathBuf {
    folder.join(format!("process-{worker}.progress"))
}

fn outcome_file(folder: &Path, worker: u32) -> PathBuf {
    folder.join(format!("process-{worker}.json"))
}
