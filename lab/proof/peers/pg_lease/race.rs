//! The race between check and commit, with pg_lease. A function runs under the lease, as in its README. Its transaction
//! checks with `verify_lease_held` and reads, and writes when it is ordered to. Until then the process stands still, so
//! the lease is not renewed.
//!
//! `pg_lease_race URL NAME`: prints `looked`, waits for a line, and prints `committed` or the error. `lock-proof race` runs it.

use std::error::Error;
use std::time::Duration;

use pg_lease::{LeaseLooper, LeaseLooperOptions, verify_lease_held};
use sqlx::{Executor as _, PgPool};

type Failure = Box<dyn Error + Send + Sync>;

async fn add(pool: PgPool, name: String) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    if !verify_lease_held(&mut transaction, "race", &name).await? {
        return Err("the lease is not held".into());
    }
    let (n,): (i64,) = sqlx::query_as("SELECT n FROM counter").fetch_one(&mut *transaction).await?;
    println!("looked");
    // The read blocks the whole process, as if it were stopped.
    std::io::stdin().read_line(&mut String::new())?;
    // One message, sent before any other task of this process runs again.
    let write = format!("UPDATE counter SET n = {}; INSERT INTO done VALUES ('{name}'); COMMIT", n + 1);
    transaction.execute(&*write).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let [url, name] = [1, 2].map(|place| std::env::args().nth(place).unwrap_or_default());
    let pool = PgPool::connect(&url).await?;
    let run = |_, (pool, name): (PgPool, String)| async move {
        println!("{}", add(pool, name).await.map_or_else(|why| format!("failed: {why}"), |()| "committed".to_owned()));
        std::process::exit(0)
    };
    let lease_duration = Duration::from_secs(6);
    let (loop_interval, loop_interval_jitter) = (lease_duration / 60, lease_duration / 60);
    let lease_heartbeat_interval = lease_duration / 3;
    let options = LeaseLooperOptions { loop_interval, loop_interval_jitter, lease_duration, lease_heartbeat_interval };
    let looper = LeaseLooper::new("race".to_owned(), run, name.clone(), pool.clone(), options, (pool, name));
    looper.start().await?;
    std::future::pending().await
}
