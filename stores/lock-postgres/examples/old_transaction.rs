//! How a transaction that stays open slows one hot key: `cargo run --release -p lock-postgres --example old_transaction`.
//!
//! It starts a server of its own. The pages that one look for the key reads depend on nothing but the number of pairs; the times are those
//! of this machine.
#![allow(clippy::disallowed_methods, reason = "measures in real time")]

use std::error::Error;

use lock_core::LockManager;
use lock_postgres as _;
use lock_testing::PostgresServer;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

const PAIRS: u32 = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = PostgresServer::start();
    let locks = LockManager::connect(&server.url()).await?;
    let (old, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    tokio::spawn(connection);
    println!("| pairs since the transaction began | pages of one look | a pair (ms) |\n|---|---|---|");
    row("before it", &locks, &server).await?;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?;
    for thousand in 1..=10 {
        row(&format!("{thousand},000"), &locks, &server).await?;
    }
    old.batch_execute("COMMIT").await?;
    // The first finds and removes what is left.
    row("after it, the first 1,000", &locks, &server).await?;
    row("after it, the next 1,000", &locks, &server).await
}

async fn row(name: &str, locks: &LockManager, server: &PostgresServer) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    for _ in 0..PAIRS {
        locks.lock("hot").await?.release().await?;
    }
    let time = begun.elapsed() / PAIRS;
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    tokio::spawn(connection);
    println!("| {name} | {} | {:.2} |", pages(&client).await?, time.as_secs_f64() * 1000.0);
    Ok(())
}

/// Returns how many pages one look for the key reads.
async fn pages(client: &Client) -> Result<String, Box<dyn Error>> {
    let look = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) SELECT FROM lock_core.lock WHERE key = 'hot'";
    let lines = client.query(look, &[]).await?;
    let hit = lines
        .iter()
        .find_map(|line| line.get::<_, &str>(0).trim().strip_prefix("Buffers: shared hit=").map(str::to_owned));
    Ok(hit.unwrap_or_default())
}
