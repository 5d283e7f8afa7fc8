//! N replicas start at once. One migrates the database, the others wait, and then all of them serve.
//!
//! ```sh
//! DATABASE_URL=postgres://user@pooler:6432/shop cargo run --manifest-path lab/Cargo.toml -p migrations
//! ```
//!
//! The migrations of sqlx take an advisory lock of the session. Behind a pooler by transaction, such a lock hangs or
//! protects nothing. So it is switched off, and a lock of this library replaces it. sqlx keeps a table of the
//! migrations that have run: the replicas that come later find nothing to do, and need no mark of their own.
//!
//! `LOCK_URL` names another store for the lock, for example Redis. `MIGRATIONS` names a folder that replaces the
//! migrations that are compiled in.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io};

use lock_core::LockManager;
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// How long a replica waits for the one that migrates.
const WAIT: Duration = Duration::from_secs(600);

/// For how long a replica that was killed keeps the others waiting.
const TTL: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match start().await {
        Ok(migrations) => {
            println!("serving, with {migrations} migrations in the database");
            ExitCode::SUCCESS
        }
        // A replica whose database is not as it expects must not serve.
        Err(error) => {
            eprintln!("not serving: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<usize, Failure> {
    let database_url = env::var("DATABASE_URL").map_err(|_| io::Error::other("set DATABASE_URL"))?;
    let lock_url = env::var("LOCK_URL").unwrap_or_else(|_| database_url.clone());
    // A pooler refuses this parameter of a new connection.
    let options = database_url.parse::<PgConnectOptions>()?.extra_float_digits(None);
    let database = PgPoolOptions::new().max_connections(2).connect_with(options).await?;
    let locks = LockManager::connect(&lock_url).await?;
    let mut migrator = match env::var("MIGRATIONS") {
        Ok(folder) => Migrator::new(Path::new(&folder)).await?,
        Err(_) => sqlx::migrate!(),
    };
    migrator.set_locking(false);
    let is_pinned = lock_url.starts_with("postgres");
    locks
        .lock("migrate:shop")
        .with_ttl(TTL)
        .with_wait(WAIT)
        .run(async |guard| migrate(guard, &migrator, &database, is_pinned).await)
        .await?;
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(migrator.migrations.len())
}

/// Runs the migrations in one transaction: all of them, or none.
async fn migrate(
    guard: &lock_core::LockGuard,
    migrator: &Migrator,
    database: &PgPool,
    is_pinned: bool,
) -> Result<(), Failure> {
    let mut transaction = database.begin().await?;
    // sqlx names its statements, and the session of a pooler may still have those of another client.
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *transaction).await?;
    // Else the server finishes a statement whose client was killed, and the transaction keeps its lock until then.
    sqlx::raw_sql("SET LOCAL client_connection_check_interval = '1s'").execute(&mut *transaction).await?;
    if is_pinned {
        // The lock stays taken until the commit, even if this process stands still for longer than its lease.
        let pin = lock_postgres::pin(guard);
        sqlx::query(pin.text()).bind(pin.key()).bind(pin.token()).execute(&mut *transaction).await?;
    }
    migrator.run(&mut *transaction).await?;
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}
