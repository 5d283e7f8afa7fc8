//! Creates locks with one problem each, on purpose: stuck, lost, orphaned, without a lease,
//! contended, taken in both orders. Beside them are healthy ones: permits, stripes, a leader, a job.
//!
//! Use it to learn what alerts, dashboards, the live view and `lockctl` show, before the first real
//! incident. `dashboards/README.md` explains how to start the whole stack.
//!
//! ```sh
//! redis-server &
//! cargo run -p lock-examples --bin stuck
//! cargo run -p lock-examples --bin stuck -- --stuck-for 40s --stuck-after 5s --run-for 90s
//! cargo run -p lock-examples --bin stuck -- --help
//! ```

mod args;
mod everyday;
mod guide;
mod left_behind;
mod scenes;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_core::LockManager;
use lock_metrics::FleetInspector;
use tokio::signal;
use tokio::task::JoinSet;
use tracing_subscriber::filter::LevelFilter;

use crate::args::Args;
use crate::guide::Keys;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse_or_exit();
    let outcome = if args.orphan { left_behind::hold_until_killed(&args).await } else { run(&args).await };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stuck: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the scenes until it is time to stop, then cleans up.
async fn run(args: &Args) -> Result<()> {
    // Logs the events of a stuck lock, a lost lock, or a deadlock.
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(std::io::stderr).init();
    let mut metrics = lock_metrics::builder().with_listener(SocketAddr::new(args.address, args.port));
    if !args.address.is_loopback() {
        // In a container, every neighbour belongs to this demo. A real service must not show its keys to all.
        metrics = metrics.with_live_view_for_all();
    }
    let metrics = metrics
        .install()
        .context("cannot serve the metrics; is the port taken? --port sets another one, 0 any free one")?;
    let locks = connect(args).await?;
    // To the store this manager is another process. It waits in the store's queue, where `lockctl` sees it.
    let others = connect(args).await?;
    let keys = Keys::of_this_process();
    left_behind::leave_behind(args, &locks, &keys).await?;
    let inspector = inspector(args)?.start(&metrics).context("cannot start the fleet inspector")?;
    if let Some(address) = metrics.listener() {
        guide::print(args, &keys, address);
    }

    let mut scenes = JoinSet::new();
    scenes::play(&mut scenes, args, &locks, &others, &keys);
    everyday::play(&mut scenes, [&locks, &others], keys.run);
    let outcome = tokio::select! {
        outcome = first_failure(&mut scenes) => outcome,
        () = time_to_stop(args.run_for) => Ok(()),
    };
    scenes.shutdown().await;
    inspector.stop().await;
    let mut clean = true;
    for manager in [locks, others] {
        clean &= manager.shutdown(Duration::from_secs(20)).await.is_clean();
    }
    left_behind::clean_up(args, &keys).await?;
    println!("stopped; every lock given back: {clean}");
    outcome
}

/// Scans Redis for problems that a process cannot see itself. Holders store the names of their locks; keys of other
/// programs are recognised by their prefix.
fn inspector(args: &Args) -> Result<FleetInspector> {
    let inspector = FleetInspector::new(&args.store)?.with_interval(args.inspect_every);
    Ok(inspector.with_prefix("demo:eternal:", "demo:eternal:migration:<run>"))
}

async fn connect(args: &Args) -> Result<LockManager> {
    let unreachable = || {
        format!(
            "cannot use the lock store {}; start a Redis with `redis-server`, or set LOCK_URL to one that runs",
            args.store_name()
        )
    };
    let locks = LockManager::builder_for(&args.store)?.lint_lock_order(true).build()?;
    locks.ping().await.with_context(unreachable)?;
    Ok(locks)
}

/// Waits for a failing scene. Otherwise scenes never end.
async fn first_failure(scenes: &mut JoinSet<Result<()>>) -> Result<()> {
    match scenes.join_next().await {
        Some(ended) => ended?,
        None => Ok(()),
    }
}

async fn time_to_stop(run_for: Option<Duration>) {
    let timer = async {
        match run_for {
            Some(run_for) => tokio::time::sleep(run_for).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = timer => {}
        // Without signals the program runs until it is killed.
        Ok(()) = signal::ctrl_c() => {}
        () = terminated() => {}
    }
}

/// Waits for SIGTERM, which a container gets instead of Ctrl-C.
#[cfg(unix)]
async fn terminated() {
    match signal::unix::signal(signal::unix::SignalKind::terminate()) {
        Ok(mut terminate) => {
            terminate.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
