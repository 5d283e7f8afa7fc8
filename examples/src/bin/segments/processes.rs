//! Sales in several processes. Each begins when all are connected, and reports its sold pieces.

use std::env;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_core::LockManager;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, stdin};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;

use crate::{Args, sell as sell_here};

/// Sells in several processes. Returns the sold pieces of each segment, and the duration.
pub(crate) async fn sell(args: &Args, segments: u32, folder: &Path) -> Result<(Vec<u32>, Duration)> {
    let mut processes = Vec::new();
    for number in 0..args.processes {
        let buyers = args.buyers / args.processes + u32::from(number < args.buyers % args.processes);
        processes.push(start(args, segments, folder, buyers)?);
    }
    for (_, said) in &mut processes {
        line(said).await?;
    }
    let began = Instant::now();
    for (process, _) in &mut processes {
        // The end of the input is the start signal.
        drop(process.stdin.take());
    }
    let mut sold = vec![0; segments as usize];
    for (_, said) in &mut processes {
        for (sum, sold) in sold.iter_mut().zip(line(said).await?.split(' ')) {
            *sum += sold.parse::<u32>().context("a process said something else than numbers")?;
        }
    }
    let took = began.elapsed();
    for (process, _) in &mut processes {
        process.wait().await.context("a process cannot be waited for")?;
    }
    Ok((sold, took))
}

/// Sells as one of several processes.
pub(crate) async fn sell_as_told(args: &Args, folder: &Path) -> Result<()> {
    let segments = *args.segments.first().context("how many segments?")?;
    let locks = LockManager::connect(&args.store).await.context("cannot use the lock store")?;
    say("ready").await?;
    let mut orders = BufReader::new(stdin()).lines();
    while orders.next_line().await?.is_some() {}
    let sold = sell_here(&locks, args, segments, folder, args.buyers).await?;
    say(&sold.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")).await
}

async fn say(line: &str) -> Result<()> {
    let mut out = tokio::io::stdout();
    out.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(out.flush().await?)
}

fn start(args: &Args, segments: u32, folder: &Path, buyers: u32) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut process = Command::new(env::current_exe().context("cannot find this program")?)
        .arg(format!("--segments={segments}"))
        .arg(format!("--buyers={buyers}"))
        .arg(format!("--seconds={}", args.seconds))
        .arg(format!("--hold={}", args.hold))
        .arg("--books")
        .arg(folder)
        // Passed in the environment: the URL may contain a password, and every user can list the arguments of a process.
        .env("LOCK_URL", &args.store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a process")?;
    let said = process.stdout.take().context("a process has no output")?;
    Ok((process, BufReader::new(said).lines()))
}

async fn line(said: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    said.next_line().await?.context("a process has failed; its message is above")
}
