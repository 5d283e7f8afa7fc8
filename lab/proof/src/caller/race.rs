//! One of two processes that add to a counter under one lock. In its transaction it checks or pins the lock and reads
//! the counter; it writes when the harness orders it. Until then the process does nothing, so its lease is not renewed.
//! `peers/pg_lease/race.rs` does the same with pg_lease.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, Renew};
use lock_postgres::PostgresStore;
use tokio_postgres::{Client, NoTls};

use crate::caller::{Args, say};

type Failure = Box<dyn std::error::Error>;

/// Long enough for a busy machine to answer in time, and short enough to end while this process stands still.
const TTL: Duration = Duration::from_secs(6);

pub(super) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let said = runtime.block_on(add(args)).map_or_else(|why| format!("failed: {why}"), |()| "committed".to_owned());
    say(&said);
}

async fn add(args: &Args) -> Result<(), Failure> {
    let (url, name) = (args.text("url"), args.text("name"));
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let locks = LockManager::builder(PostgresStore::new(url)?).build()?;
    // The first call makes the tables, which is not part of the time that a try has.
    locks.ping().await?;
    let guard = granted(&locks).await?;
    client.batch_execute("BEGIN").await?;
    if args.text("pins") == "true" {
        let pin = lock_postgres::pin(&guard);
        client.execute(pin.text(), &[&pin.key(), &pin.token()]).await?;
    } else {
        look(&client, &guard).await?;
    }
    let n: i64 = client.query_one("SELECT n FROM counter", &[]).await?.get(0);
    say("looked");
    std::io::stdin().read_line(&mut String::new())?;
    let write = format!("UPDATE counter SET n = {}; INSERT INTO done VALUES ('{name}'); COMMIT", n + 1);
    Ok(client.batch_execute(&write).await?)
}

/// Retries until the lock is granted. Says so if the first attempt was refused.
async fn granted(locks: &LockManager) -> Result<LockGuard, Failure> {
    let ask = || locks.lock("race").with_ttl(TTL).with_renew(Renew::Off);
    if let Some(guard) = ask().try_acquire().await? {
        return Ok(guard);
    }
    say("refused");
    Ok(ask().with_wait(Duration::from_secs(60)).await?)
}

/// The check of a caller without a pin: the row of the lock shows that it is held.
async fn look(client: &Client, guard: &LockGuard) -> Result<(), Failure> {
    guard.ensure_held()?;
    let held = "SELECT FROM lock_core.lock WHERE key = 'race' AND owner IS NOT NULL AND until > clock_timestamp()";
    client.query_one(held, &[]).await?;
    Ok(())
}
