//! One hot product, whose stock is one number or split into segments with a lock each.
//!
//! Each sale reads a number from a plain file, works for a millisecond, and writes it back, under the lock of its
//! segment. With one segment each sale waits for the previous one on any hardware. With 16, a buyer takes any free
//! segment (`striped(…).any()`) and skips sold-out ones (`except`). At the end the books are checked: remaining and
//! sold pieces must add up in every segment.
//!
//! ```sh
//! cargo run -p lock-examples --bin segments                                        # the store built in
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin segments        # four lock managers on Redis
//! cargo run -p lock-examples --bin segments -- --help
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Parser, value_parser};
use lock_core::{LockErrorKind, LockManager, Striped};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Sells one product from 1, 4 and 16 segments of its stock, and checks the books.
#[derive(Clone, Debug, Parser)]
#[command(name = "segments")]
struct Args {
    /// The store; with one that processes share, several lock managers stand for processes
    #[arg(long = "redis", value_name = "URL", env = "LOCK_URL", hide_env_values = true, default_value = "memory://")]
    store: String,

    /// How many segments, one run for each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,16", value_parser = value_parser!(u32).range(1..=4096))]
    segments: Vec<u32>,

    /// How many lock managers sell, if the store is shared; each is a process to the store
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    processes: u32,

    /// How many buyers there are
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    buyers: u32,

    /// How much there is to sell
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    stock: u32,

    /// How long the sale lasts, unless it is sold out before
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,

    /// How long one sale works under the lock, ms
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    hold: f64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one sale for each number of segments, and prints the table.
async fn compare(args: &Args) -> Result<()> {
    // Every manager of the built-in store would have locks of its own.
    let processes = if args.store.starts_with("memory:") { 1 } else { args.processes };
    eprintln!("{} buyers, {processes} lock managers, {} ms a sale", args.buyers, args.hold);
    println!("segments   sales a second   × the first");
    let mut first = None;
    for &segments in &args.segments {
        let folder =
            tempfile::Builder::new().prefix("segments-").tempdir().context("cannot make a folder for the books")?;
        let opening = |segment| args.stock / segments + u32::from(segment < args.stock % segments);
        for segment in 0..segments {
            write(folder.path(), segment, opening(segment))?;
        }
        let mut managers = Vec::new();
        for _ in 0..processes {
            managers.push(LockManager::connect(&args.store).await.context("cannot use the lock store")?);
        }
        let began = Instant::now();
        let sold = sell(&managers, args, segments, folder.path()).await?;
        let rate = f64::from(sold.iter().sum::<u32>()) / began.elapsed().as_secs_f64();
        for (segment, sold) in (0..).zip(sold) {
            let (began, left) = (opening(segment), read(folder.path(), segment)?);
            ensure!(left + sold == began, "segment {segment} had {began}, sold {sold}, and has {left} left");
        }
        println!("{segments:8}   {rate:14.0}   {:11.1}", rate / *first.get_or_insert(rate));
    }
    println!("the books agree with every sale");
    Ok(())
}

/// Sells until the time is up or the stock is sold out. Returns the sold pieces of each segment.
async fn sell(managers: &[LockManager], args: &Args, segments: u32, folder: &Path) -> Result<Vec<u32>> {
    let until = Instant::now() + Duration::from_secs_f64(args.seconds);
    let hold = Duration::from_secs_f64(args.hold / 1_000.0);
    let mut buyers = JoinSet::new();
    for (_, locks) in (0..args.buyers).zip(managers.iter().cycle()) {
        buyers.spawn(buy(locks.striped("stock:42", segments), folder.to_owned(), until, hold));
    }
    let selling = async {
        let mut sold = vec![0; segments as usize];
        while let Some(bought) = buyers.join_next().await {
            for segment in bought?? {
                sold[segment as usize] += 1;
            }
        }
        Ok::<_, anyhow::Error>(sold)
    };
    let sold = tokio::select! {
        sold = selling => sold,
        _ = managers[0].shutdown_on_signal(Duration::from_secs(5)) => Err(anyhow!("stopped before the end of the sale")),
    };
    for locks in managers {
        ensure!(locks.shutdown(Duration::from_secs(5)).await.is_clean(), "some locks could not be given back");
    }
    sold
}

/// Buys one piece after the other. Returns the segment of each.
async fn buy(stock: Striped, folder: PathBuf, until: Instant, hold: Duration) -> Result<Vec<u32>> {
    let (mut bought, mut empty) = (Vec::new(), Vec::new());
    while Instant::now() < until && empty.len() < stock.count() as usize {
        let left = until.saturating_duration_since(Instant::now());
        let guard = match stock.any().except(&empty).with_wait(left.max(Duration::from_millis(1))).await {
            Err(error) if error.kind() == LockErrorKind::Timeout => break,
            guard => guard?,
        };
        let segment = guard.stripe().context("a stripe has a number")?;
        let pieces = read(&folder, segment)?;
        if pieces == 0 {
            empty.push(segment);
        } else {
            sleep(hold).await;
            guard.ensure_held()?;
            write(&folder, segment, pieces - 1)?;
            bought.push(segment);
        }
        guard.release().await?;
    }
    Ok(bought)
}

/// Reads the remaining pieces of a segment. Call it under the segment's lock.
fn read(folder: &Path, segment: u32) -> Result<u32> {
    let file = folder.join(format!("segment-{segment}"));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    text.parse().with_context(|| format!("{} is garbled: {text:?}", file.display()))
}

/// Writes the remaining pieces of a segment. Call it under the segment's lock.
fn write(folder: &Path, segment: u32, pieces: u32) -> Result<()> {
    let file = folder.join(format!("segment-{segment}"));
    fs::write(&file, pieces.to_string()).with_context(|| format!("cannot write {}", file.display()))
}
