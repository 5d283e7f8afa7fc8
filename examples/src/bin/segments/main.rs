//! One hot product, whose stock is one number or split into segments with a lock each.
//!
//! Each sale reads a number from a plain file, works for a millisecond, and writes it back, under the lock of its
//! segment. With one segment each sale waits for the previous one on any hardware. With 16, a buyer takes any free
//! segment (`striped(…).any()`) and skips sold-out ones (`except`). At the end the books are checked: remaining and
//! sold pieces must add up in every segment.
//!
//! ```sh
//! cargo run -p lock-examples --bin segments                                        # one process, the store built in
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin segments        # four processes on Redis
//! cargo run -p lock-examples --bin segments -- --help
//! ```

mod books;
mod processes;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, value_parser};
use lock_core::{LockErrorKind, LockManager, Striped};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::books::Books;

/// Sells one product from 1, 4 and 16 segments of its stock, and checks the books.
#[derive(Clone, Debug, Parser)]
#[command(name = "segments")]
pub(crate) struct Args {
    /// The store; with one that processes share, several of them sell
    #[arg(long = "redis", value_name = "URL", env = "LOCK_URL", hide_env_values = true, default_value = "memory://")]
    pub(crate) store: String,

    /// How many segments, one run for each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,16", value_parser = value_parser!(u32).range(1..=4096))]
    pub(crate) segments: Vec<u32>,

    /// How many processes sell, if the store is shared
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// How many buyers there are, over all processes
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) buyers: u32,

    /// How much there is to sell
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) stock: u32,

    /// How long the sale lasts, unless it is sold out before
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(crate) seconds: f64,

    /// How long one sale works under the lock, ms
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    pub(crate) hold: f64,

    /// Set by the parent in the processes it starts: where the books are
    #[arg(long, hide = true)]
    pub(crate) books: Option<std::path::PathBuf>,
}

impl Args {
    fn shared(&self) -> bool {
        !self.store.starts_with("memory:")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.books.clone() {
        Some(folder) => processes::sell_as_told(&args, &folder).await,
        None => compare(&args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one sale for each number of segments, and prints the table.
async fn compare(args: &Args) -> Result<()> {
    let processes = if args.shared() { args.processes } else { 1 };
    eprintln!("{} buyers in {processes} processes, {} ms a sale", args.buyers, args.hold);
    println!("segments   sales a second   × the first");
    let mut first = None;
    for &segments in &args.segments {
        let folder =
            tempfile::Builder::new().prefix("segments-").tempdir().context("cannot make a folder for the books")?;
        let books = Books::open(folder.path(), segments, args.stock)?;
        let (sold, took) = if args.shared() {
            processes::sell(args, segments, folder.path()).await?
        } else {
            let (locks, began) = (LockManager::connect(&args.store).await?, Instant::now());
            let sold = sell(&locks, args, segments, folder.path(), args.buyers).await?;
            (sold, began.elapsed())
        };
        books.check(&sold)?;
        let rate = f64::from(sold.iter().sum::<u32>()) / took.as_secs_f64();
        println!("{segments:8}   {rate:14.0}   {:11.1}", rate / *first.get_or_insert(rate));
    }
    println!("the books agree with every sale");
    Ok(())
}

/// Sells until the time is up or the stock is sold out. Returns the sold pieces of each segment.
pub(crate) async fn sell(
    locks: &LockManager,
    args: &Args,
    segments: u32,
    folder: &Path,
    buyers: u32,
) -> Result<Vec<u32>> {
    let stock = locks.striped("stock:42", segments);
    let until = Instant::now() + Duration::from_secs_f64(args.seconds);
    let hold = Duration::from_secs_f64(args.hold / 1_000.0);
    let mut tasks = JoinSet::new();
    for _ in 0..buyers {
        tasks.spawn(buy(stock.clone(), Books::at(folder), until, hold));
    }
    let selling = async {
        let mut sold = vec![0; segments as usize];
        while let Some(bought) = tasks.join_next().await {
            for segment in bought?? {
                sold[segment as usize] += 1;
            }
        }
        Ok::<_, anyhow::Error>(sold)
    };
    let sold = tokio::select! {
        sold = selling => sold?,
        _ = locks.shutdown_on_signal(Duration::from_secs(5)) => bail!("stopped before the end of the sale"),
    };
    ensure!(locks.shutdown(Duration::from_secs(5)).await.is_clean(), "some locks could not be given back");
    Ok(sold)
}

/// Buys one piece after the other. Returns the segment of each.
async fn buy(stock: Striped, books: Books, until: Instant, hold: Duration) -> Result<Vec<u32>> {
    let (mut bought, mut empty) = (Vec::new(), Vec::new());
    while Instant::now() < until && empty.len() < stock.count() as usize {
        let left = until.saturating_duration_since(Instant::now());
        let guard = match stock.any().except(&empty).with_wait(left.max(Duration::from_millis(1))).await {
            Err(error) if error.kind() == LockErrorKind::Timeout => break,
            guard => guard?,
        };
        let segment = guard.stripe().context("a stripe has a number")?;
        let pieces = books.read(segment)?;
        if pieces == 0 {
            empty.push(segment);
        } else {
            sleep(hold).await;
            guard.ensure_held()?;
            books.write(segment, pieces - 1)?;
            bought.push(segment);
        }
        guard.release().await?;
    }
    Ok(bought)
}
