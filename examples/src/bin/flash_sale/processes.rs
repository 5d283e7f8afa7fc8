//! Runs the sale in several processes. The parent starts them. Each takes its share of the orders, and writes lines to
//! its output: how many orders it has answered so far, now and then, and its results at the end.

use std::env;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::interrupted;
use crate::progress::Progress;
use crate::sale::Takings;
use crate::stopwatch::Times;

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
    let (mut children, mut outcomes) = (Vec::new(), JoinSet::new());
    for worker in 0..args.processes {
        let child = command(args, folder, worker)?.spawn();
        let mut child = child.with_context(|| format!("cannot start process {worker}"))?;
        let output = child.stdout.take().context("a process has no output")?;
        outcomes.spawn(outcome(worker, output, progress.clone()));
        children.push(child);
    }
    let outcome = tokio::select! {
        outcome = sum(outcomes) => outcome,
        () = interrupted() => Err(anyhow!("interrupted, the sale is off")),
    };
    // Waits for the end of each process: none may write into the folder when it is removed. After a failure the locks
    // that they held become free when their leases end.
    for child in &mut children {
        let _ = child.kill().await;
    }
    outcome
}

/// Reads what a process writes, to its end.
async fn outcome(worker: u32, output: ChildStdout, progress: Progress) -> Result<Outcome> {
    let (mut lines, mut answered, mut last) = (BufReader::new(output).lines(), 0, None);
    while let Some(line) = lines.next_line().await? {
        match line.parse::<usize>() {
            Ok(now) => progress.add(now - std::mem::replace(&mut answered, now)),
            Err(_) => last = Some(line),
        }
    }
    let last = last.with_context(|| format!("process {worker} failed; its message is above"))?;
    serde_json::from_str(&last).with_context(|| format!("the outcome of process {worker} is garbled"))
}

/// Adds up the outcomes of all processes.
async fn sum(mut outcomes: JoinSet<Result<Outcome>>) -> Result<Outcome> {
    let mut all: Option<Outcome> = None;
    while let Some(outcome) = outcomes.join_next().await {
        let outcome = outcome??;
        all = Some(match all {
            None => outcome,
            Some(mut all) => {
                all.takings.answers.extend(outcome.takings.answers);
                all.takings.opened = all.takings.opened.min(outcome.takings.opened);
                all.takings.closed = all.takings.closed.max(outcome.takings.closed);
                all.times.add(outcome.times);
                all
            }
        });
    }
    all.context("no process was started")
}

/// Reports the progress of this process to the parent, for as long as the future is awaited.
pub(crate) async fn report_progress(progress: &Progress) {
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        println!("{}", progress.get());
    }
}

/// Passes the results of this process to the parent.
pub(crate) fn hand_over(outcome: &Outcome) -> Result<()> {
    println!("{}\n{}", outcome.takings.answers.len(), serde_json::to_string(outcome)?);
    Ok(())
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
        .stdout(Stdio::piped())
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
