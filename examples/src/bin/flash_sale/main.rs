//! A flash sale: thousands of orders for a few products in short supply.
//!
//! The stock is kept in plain files that are read, changed and written back. Two purchases of one
//! product at once would lose one of them, or sell missing stock. One line prevents that, above
//! `purchase` in `sale.rs`. Everything else here prepares the sale, measures it, and checks it.
//!
//! ```sh
//! cargo run -p lock-examples                                # one process, the store built in
//! cargo run -p lock-examples -- --without-lock              # what happens without the lock
//! cargo run -p lock-examples -- --redis --processes 4       # four processes on Redis
//! cargo run -p lock-examples -- --store sentinel --failover # a master, two replicas; the master is killed
//! cargo run -p lock-examples -- --store quorum --failover  # three servers, one of which dies in mid-sale
//! cargo run -p lock-examples -- --help
//! ```

mod args;
mod check;
mod data;
mod ledger;
mod processes;
mod progress;
mod report;
mod sale;
mod servers;
mod stopwatch;

use std::future::{pending, ready};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use lock_core::LockManager;
use lock_metrics::MetricsHandle;
use tokio::signal;

use crate::args::Args;
use crate::check::Audit;
use crate::data::{Data, Order};
use crate::ledger::Ledger;
use crate::processes::{Outcome, share};
use crate::progress::Progress;
use crate::report::Report;
use crate::sale::Sale;
use crate::servers::Servers;
use crate::stopwatch::Stopwatch;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse_or_exit();
    // From here on a signal ends the sale. It would end this process before the ledger is removed, until somebody listens.
    #[cfg(unix)]
    for kind in [signal::unix::SignalKind::interrupt(), signal::unix::SignalKind::terminate()] {
        drop(signal::unix::signal(kind));
    }
    let outcome = match (args.worker, &args.ledger) {
        (Some(worker), Some(folder)) => work(&args, worker, folder).await.map(|()| ExitCode::SUCCESS),
        _ => hold_sale(&args).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("flash_sale: {error:#}");
        ExitCode::FAILURE
    })
}

/// Opens the ledger, runs the sale, audits it, and reports.
async fn hold_sale(args: &Args) -> Result<ExitCode> {
    let data = Data::load(args.data.as_deref())?;
    let orders = placed(args, &data)?;
    // The folder is removed on drop, even after an error or Ctrl-C.
    let folder =
        tempfile::Builder::new().prefix("flash-sale-").tempdir().context("cannot make a folder for the ledger")?;
    let ledger = Ledger::create(folder.path(), &data.stock)?;
    let metrics = install_metrics(args)?;
    let mut args = args.clone();
    let mut servers = None;
    if let Some(kind) = args.started {
        let started = Servers::start(kind).await?;
        args.store = started.url();
        servers = Some(started);
    }
    let args = &args;
    announce(args, orders.len(), data.stock.len());

    let progress = Progress::default();
    let sale = async {
        if args.processes > 1 {
            processes::run(args, folder.path(), &progress).await
        } else {
            sell(args, folder.path(), orders.to_vec(), args.buyers, &progress).await
        }
    };
    let faults = async {
        match &mut servers {
            Some(servers) if args.failover => servers.lose_one(orders.len(), &progress).await,
            _ => pending().await,
        }
    };
    let Outcome { takings, times } = tokio::select! {
        outcome = progress.show_while(orders.len(), sale) => outcome?,
        () = faults => unreachable!("faults never end"),
    };

    let audit = Audit::of(orders, &takings.answers, &data.stock, &ledger);
    let elapsed = takings.closed.duration_since(takings.opened).unwrap_or_default();
    let (locked, unconfirmed) = (!args.without_lock, args.is_unconfirmed());
    let verdict = Report { orders: orders.len(), elapsed, times, audit, locked, unconfirmed }.print();
    if let Some(address) = metrics.listener() {
        println!("serving http://{address}/metrics until Ctrl-C");
        interrupted().await;
    }
    Ok(verdict)
}

/// Places the orders of one process, and passes the results to the parent.
async fn work(args: &Args, worker: u32, folder: &Path) -> Result<()> {
    let data = Data::load(args.data.as_deref())?;
    install_metrics(args)?;
    let step = args.processes.max(1) as usize;
    let orders = placed(args, &data)?.iter().skip(worker as usize).step_by(step).cloned().collect();
    let buyers = share(args.buyers, args.processes, worker).max(1);
    let progress = Progress::default();
    let outcome = tokio::select! {
        outcome = sell(args, folder, orders, buyers, &progress) => outcome?,
        () = processes::report_progress(&progress) => unreachable!("reporting never ends"),
    };
    processes::hand_over(&outcome)
}

/// Connects to the lock store, runs the sale in this process, and releases every lock.
async fn sell(args: &Args, folder: &Path, orders: Vec<Order>, buyers: u32, progress: &Progress) -> Result<Outcome> {
    let locked = !args.without_lock;
    let stopwatch = Stopwatch::default();
    // Without the lock a store is not needed, so the in-memory store takes its place.
    let store = if locked { args.store.as_str() } else { "memory://" };
    let locks = LockManager::connect(store).await.context("cannot use the lock store")?;
    locks.observe(stopwatch.clone());
    locks.install()?;

    let sale = Sale { ledger: Ledger::open(folder), orders, buyers, locked };
    let off = || anyhow!("interrupted, the sale is off");
    let takings = tokio::select! {
        takings = sale.run(progress) => tokio::select! {
            biased;
            // A buyer that is refused because of the signal also ends the sale.
            () = locks.stopping() => Err(off()),
            takings = ready(takings) => Ok(takings),
        },
        // Drains: purchases that have begun are completed.
        _ = locks.shutdown_on_signal(Duration::from_secs(5)) => Err(off()),
    };
    let shutdown = locks.shutdown(Duration::from_secs(5)).await;
    let takings = takings?;
    ensure!(shutdown.is_clean(), "some locks could not be given back: {shutdown:?}");
    Ok(Outcome { takings, times: stopwatch.read() })
}

/// Returns the orders that this run places.
fn placed<'a>(args: &Args, data: &'a Data) -> Result<&'a [Order]> {
    let all = data.orders.as_slice();
    let Some(count) = args.orders else { return Ok(all) };
    all.get(..count as usize).with_context(|| format!("--orders {count}: there are only {} orders", all.len()))
}

fn install_metrics(args: &Args) -> Result<MetricsHandle> {
    let mut metrics = lock_metrics::builder();
    if let Some(address) = args.serve {
        metrics = metrics.with_listener(address);
    }
    metrics.install().context("cannot serve metrics")
}

fn announce(args: &Args, orders: usize, products: usize) {
    let store = if args.without_lock { "no lock".to_owned() } else { format!("locks in {}", args.store_name()) };
    let plural = if args.processes == 1 { "" } else { "es" };
    let (buyers, processes) = (args.buyers, args.processes);
    eprintln!("{orders} orders for {products} products, {buyers} buyers in {processes} process{plural}, {store}");
}

/// Waits for Ctrl-C or, on Unix, for SIGTERM.
pub(crate) async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = signal::ctrl_c().await;
}
