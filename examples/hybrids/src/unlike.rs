//! One lock over a majority of Redis, PostgreSQL and ZooKeeper.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lock_core::{AnyBackend, LockManager, Quorum, RedisStore};
use lock_postgres::PostgresStore;
use lock_zookeeper::ZooKeeper;
use tokio::time::sleep;

use crate::{Fleet, fleet};

/// A process that is killed keeps its lock for so long.
const TTL: Duration = Duration::from_secs(2);

/// Names the same members in every process.
fn quorum(args: &Fleet, zookeeper: &str) -> Result<Quorum> {
    let members = [
        AnyBackend::new(RedisStore::new(&args.redis)?).named("redis"),
        AnyBackend::new(PostgresStore::new(&args.postgres)?).named("postgres"),
        AnyBackend::new(ZooKeeper::new(zookeeper)?).named("zookeeper"),
    ];
    // A Redis that has lost its data does not count until every lease from before has ended.
    Ok(Quorum::of(members)?.with_max_ttl(TTL)?)
}

pub(crate) async fn run(args: &Fleet, zookeeper: &str, books: &Path) -> Result<()> {
    let quorum = quorum(args, zookeeper)?;
    let locks = LockManager::builder(quorum.clone()).with_ttl(TTL).connect().await?;
    if args.worker {
        return work(locks, books).await;
    }
    // Once, for a quorum that is new.
    quorum.init().await?;
    File::create(books)?;
    let [killed, _] = fleet::run(args, &locks, "books", false).await?;
    let lines = audit(books)?;
    println!("{killed} kills; {lines} lines, each written under a token above those before");
    println!("the books agree");
    Ok(())
}

async fn work(locks: LockManager, books: &Path) -> Result<()> {
    let turns = async {
        loop {
            if let Err(error) = turn(&locks, books).await {
                let known = error.downcast_ref::<lock_core::LockError>();
                ensure!(known.is_some_and(lock_core::LockError::is_transient), error);
            }
        }
    };
    tokio::select! {
        ended = turns => ended,
        () = fleet::told_to_end() => {
            locks.shutdown(Duration::from_secs(5)).await;
            Ok(())
        }
    }
}

/// Adds a line to the books, with a number that the program counts.
async fn turn(locks: &LockManager, books: &Path) -> Result<()> {
    let guard = locks.lock("books").await?;
    let lines = read_to_string(books)?.lines().count();
    sleep(Duration::from_millis(5)).await;
    guard.ensure_held()?;
    // One call, so a process that is killed leaves no half of a line.
    let line = format!("{} {}\n", lines + 1, guard.token());
    OpenOptions::new().append(true).open(books)?.write_all(line.as_bytes())?;
    guard.release().await?;
    Ok(())
}

/// Checks that no number was given twice, and that tokens rise.
fn audit(books: &Path) -> Result<usize> {
    let (text, mut newest) = (read_to_string(books)?, 0_u64);
    for (place, line) in text.lines().enumerate() {
        let (number, token) = line.split_once(' ').context("a line is torn")?;
        let (number, token): (usize, u64) = (number.parse()?, token.parse()?);
        ensure!(number == place + 1, "line {} has the number {number}: two processes had the lock", place + 1);
        ensure!(token > newest, "line {number} has the token {token} after {newest}");
        newest = token;
    }
    ensure!(newest > 0, "nothing was written");
    Ok(text.lines().count())
}
