//! Locks that are never released: the lock of a killed process, and a lock without a lease.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lock_core::{LockManager, Renew};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, AsyncConnectionConfig};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::args::Args;
use crate::guide::Keys;

const LABEL: &str = "demo:orphaned:export:<run>";
const READY: &str = "the lock is taken";
const STORE_PATIENCE: Duration = Duration::from_secs(20);

/// Creates the orphan, and the lock that never expires.
pub(crate) async fn leave_behind(args: &Args, locks: &LockManager, keys: &Keys) -> Result<()> {
    make_an_orphan(args, locks, keys).await?;
    // A hand-written lock that forgets the expiry does this. This library always sets one.
    let _: () = connection(args).await?.set(keys.eternal(), "somebody").await?;
    Ok(())
}

/// Starts a process that takes the lock, and kills it.
async fn make_an_orphan(args: &Args, locks: &LockManager, keys: &Keys) -> Result<()> {
    let program = env::current_exe().context("cannot find this program again")?;
    let mut child = Command::new(program)
        .args(["--orphan", "--key", &keys.orphaned()])
        .arg(format!("--orphan-ttl={}ms", args.orphan_ttl.as_millis()))
        // Passed in the environment: the URL may contain a password, and every user can list the arguments of a process.
        .env("LOCK_URL", &args.store)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the process that is to be killed")?;
    let said = child.stdout.take().context("the process that is to be killed has no output")?;
    let line = BufReader::new(said).lines().next_line().await?;
    child.kill().await?;
    ensure!(line.as_deref() == Some(READY), "the process that was to be killed did not take its lock");
    let holder = locks.holder(keys.orphaned()).await?;
    ensure!(holder.is_some(), "the orphaned lock is gone");
    Ok(())
}

/// Runs in the child.
pub(crate) async fn hold_until_killed(args: &Args) -> Result<()> {
    let locks = LockManager::connect(&args.store).await?;
    let request = locks.lock(args.key.as_str()).with_label(LABEL).with_ttl(args.orphan_ttl).with_renew(Renew::Off);
    let _guard = request.await?;
    println!("{READY}");
    // The limit ends this process if its parent is gone.
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(())
}

/// Deletes both, and the key of the job, which stays taken for its period. All of them belong to this run.
pub(crate) async fn clean_up(args: &Args, keys: &Keys) -> Result<()> {
    let _: u32 = connection(args).await?.del(&[keys.orphaned(), keys.eternal(), keys.job()]).await?;
    Ok(())
}

/// Connects like another program, without this library, and with a longer time-out than half a second.
pub(crate) async fn connection(args: &Args) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(args.store.as_str()).context("cannot read the URL of the store")?;
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(STORE_PATIENCE))
        .set_response_timeout(Some(STORE_PATIENCE));
    Ok(client.get_multiplexed_async_connection_with_config(&patience).await?)
}
