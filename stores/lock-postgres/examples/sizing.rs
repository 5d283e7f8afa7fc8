//! Measures the load on autovacuum by a service that takes a thousand locks a second:
//! `cargo run --release -p lock-postgres --example sizing -- [MINUTES [PAIRS_A_SECOND [URL]]]`, by default 10 and 1000.
//!
//! Without a URL it starts a server of its own, whose commits are not flushed to the disk: what is counted here does not depend on it.
//! Eight of ten pairs of acquire and release take one of 10,000 keys. One pair takes one of 20 contended keys, so that processes queue.
//! One pair takes a key that is never used again, such as that of an order. Four lock managers stand for processes.
#![allow(clippy::disallowed_methods, reason = "measures in real time")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockError, LockManager};
use lock_postgres as _;
use lock_testing::PostgresServer;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_postgres::{Client, NoTls};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PROCESSES: u64 = 4;
const TASKS: u64 = 32;

/// The figures of a table.
const SEEN: &str = "SELECT n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd, autovacuum_count, pg_relation_size(relid), \
                    pg_indexes_size(relid) FROM pg_stat_user_tables WHERE schemaname = 'lock_core' AND relname = $1";

/// Pairs that ended well, and those that did not.
#[derive(Default)]
struct Counts {
    pairs: AtomicU64,
    failed: AtomicU64,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let said: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, otherwise: u64| said.get(index).map_or(Ok(otherwise), |text| text.parse());
    let (minutes, rate) = (number(0, 10)?, number(1, 1000)?);
    let own = if said.len() > 2 { None } else { Some(PostgresServer::start()) };
    let url = own.as_ref().map_or_else(|| said[2].clone(), PostgresServer::url);

    let counts = Arc::new(Counts::default());
    for process in 0..PROCESSES {
        let locks = LockManager::connect(&url).await?;
        for task in 0..TASKS {
            let name = process * TASKS + task;
            tokio::spawn(load(
                locks.clone(),
                name,
                Duration::from_nanos(1_000_000_000 * PROCESSES * TASKS / rate),
                Arc::clone(&counts),
            ));
        }
    }
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);

    println!(
        "| minute | pairs a second, failed | lock: rows, dead | updates in place | table, index (MB) | vacuumed | waiter: rows, dead | table, index (MB) | vacuumed |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let begun = Instant::now();
    let mut before = 0;
    for minute in 1..=minutes {
        sleep_until(begun + Duration::from_secs(60) * u32::try_from(minute)?).await;
        let pairs = counts.pairs.load(Ordering::Relaxed);
        let (lock, waiter) = (Table::seen(&client, "lock").await?, Table::seen(&client, "waiter").await?);
        println!(
            "| {minute} | {}, {} | {} | {:.1} % | {} | {} | {} | {} | {} |",
            (pairs - before) / 60,
            counts.failed.load(Ordering::Relaxed),
            lock.rows(),
            lock.in_place(),
            lock.sizes(),
            lock.vacuums,
            waiter.rows(),
            waiter.sizes(),
            waiter.vacuums,
        );
        before = pairs;
    }
    Ok(())
}

/// Takes and releases locks, one every so often.
async fn load(locks: LockManager, name: u64, every: Duration, counts: Arc<Counts>) {
    let mut due = interval(every);
    // The next seconds catch up on the pairs that a slow second missed.
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for round in 0_u64.. {
        due.tick().await;
        let key = match fastrand::u8(..10) {
            0 => format!("order:{name}:{round}"),
            1 => format!("hot:{}", fastrand::u8(..20)),
            _ => format!("account:{}", fastrand::u16(..10_000)),
        };
        let pair = async {
            let guard = locks.lock(key.as_str()).with_wait(Duration::from_secs(30)).await?;
            guard.release().await?;
            Ok::<_, LockError>(())
        };
        let count = if pair.await.is_ok() { &counts.pairs } else { &counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the statistics of PostgreSQL about a table.
struct Table {
    live: i64,
    dead: i64,
    updates: i64,
    hot: i64,
    vacuums: i64,
    table: i64,
    index: i64,
}

impl Table {
    async fn seen(client: &Client, name: &str) -> Outcome<Self> {
        let row = client.query_one(SEEN, &[&name]).await?;
        let [live, dead, updates, hot, vacuums, table, index] =
            [0, 1, 2, 3, 4, 5, 6].map(|column| row.get::<_, i64>(column));
        Ok(Self { live, dead, updates, hot, vacuums, table, index })
    }

    fn rows(&self) -> String {
        format!("{}, {}", self.live, self.dead)
    }

    /// Returns how many of a hundred updates needed no new entry in an index.
    #[expect(clippy::cast_precision_loss, reason = "a share is shown with one digit")]
    fn in_place(&self) -> f64 {
        self.hot as f64 * 100.0 / self.updates.max(1) as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "megabytes are shown with one digit")]
    fn sizes(&self) -> String {
        format!("{:.1}, {:.1}", self.table as f64 / 1e6, self.index as f64 / 1e6)
    }
}
