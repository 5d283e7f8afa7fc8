//! What the store costs, beside bare transactions on the same server: `cargo run --release -p lock-postgres --example figures`.
#![allow(clippy::disallowed_methods, reason = "measures in real time")]

use std::error::Error;
use std::future::Future;
use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_core::testing::PostgresServer;
use lock_postgres as _;
use tokio_postgres::{Client, NoTls};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often each thing is done.
const ROUNDS: u32 = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let server = PostgresServer::start_with(&[("fsync", "on")]);
    let locks = LockManager::connect(&server.url()).await?;
    let mut client = connect(&server).await?;
    client
        .batch_execute("CREATE TABLE account (id bigint PRIMARY KEY, n bigint); INSERT INTO account VALUES (1, 0)")
        .await?;
    let write = "UPDATE account SET n = n + 1";

    // Interleaved, so that what else the machine does meets all alike.
    let (mut one, mut pair, mut plain, mut pinned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let guard = locks.lock("pinned").with_ttl(Duration::from_secs(60)).await?;
    let pin = lock_postgres::pin(&guard);
    for round in 0..ROUNDS {
        one.push(timed(client.execute(write, &[])).await?);
        let key = format!("pair:{}", round % 50);
        pair.push(timed(async { locks.lock(key.as_str()).await?.release().await }).await?);
        let transaction = client.transaction().await?;
        plain.push(
            timed(async {
                transaction.execute(write, &[]).await.map(drop)?;
                transaction.commit().await
            })
            .await?,
        );
        let transaction = client.transaction().await?;
        let work = async {
            transaction.execute(pin.text(), &[&pin.key(), &pin.token()]).await?;
            transaction.execute(write, &[]).await?;
            transaction.commit().await
        };
        pinned.push(timed(work).await?);
    }
    let middle = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (one, pair, plain, pinned) = (middle(&mut one), middle(&mut pair), middle(&mut plain), middle(&mut pinned));
    println!("one durable transaction {one:?}, a pair {pair:?}: {:.2} x", pair.as_secs_f64() / one.as_secs_f64());
    println!("a transaction {plain:?}, with pin {pinned:?}: {:.2} x", pinned.as_secs_f64() / plain.as_secs_f64());

    let started = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..40 {
                    let guard = locks.lock(format!("task:{task}")).with_wait(Duration::from_secs(60)).await?;
                    guard.release().await?;
                }
                Ok::<_, lock_core::LockError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    println!("64 tasks, a key each: {:.0} pairs a second", 64.0 * 40.0 / started.elapsed().as_secs_f64());
    // The same with one statement and one commit for each, over eight connections.
    let mut sessions = Vec::new();
    for number in 0..8 {
        let client = connect(&server).await?;
        sessions.push(tokio::spawn(async move {
            let owner = format!("00000000-0000-0000-0000-00000000000{number}");
            for round in 0..320 {
                let key = format!("bare:{number}:{}", round % 8);
                let take = format!(
                    "SELECT * FROM lock_core.acquire_v1('{{{key}}}', '{{{owner}}}', '{{60000}}', '{{0}}', '{{x}}', \
                     '{{9000000000000000}}', '{{NULL}}', '{{0}}', '{{0}}', 'on')"
                );
                client.simple_query(&take).await?;
                let free = format!(
                    "SELECT * FROM lock_core.release_v1('{{{key}}}', '{{{owner}}}', '{{0}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', 'on')"
                );
                client.simple_query(&free).await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        }));
    }
    let started = Instant::now();
    for session in sessions {
        session.await??;
    }
    println!("unbatched, 8 connections: {:.0} pairs a second", 8.0 * 320.0 / started.elapsed().as_secs_f64());
    Ok(())
}

async fn connect(server: &PostgresServer) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn timed<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<Duration, E> {
    let started = Instant::now();
    work.await?;
    Ok(started.elapsed())
}
