//! SeaORM: one write of an existing table, under a lock that nobody else can get before the commit; and a migration whose mark is in its
//! transaction.

use lock_core::LockManager;
use lock_store::JobVersion;
use lock_postgres as _; // enters the scheme
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement, TransactionTrait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let db = Database::connect(&url).await?;
    let locks = LockManager::connect(&url).await?;

    let guard = locks.lock("account:7").await?;
    let transaction = db.begin().await?;
    let pin = lock_postgres::pin(&guard);
    let (key, token) = pin.values();
    let pin = Statement::from_sql_and_values(DbBackend::Postgres, pin.text(), [key.into(), token.into()]);
    transaction.execute_raw(pin).await?; // `execute` in SeaORM 1
    transaction.execute_unprepared("UPDATE account SET balance = balance - 10 WHERE id = 7").await?;
    transaction.commit().await?;
    guard.release().await?;
    println!("account 7 is written");

    let version = JobVersion::new("v43")?;
    let done = locks.lock("migrate:account").once_for("v43").run(async |guard| {
        let transaction = db.begin().await?;
        let mark = lock_postgres::mark_done(guard, &version);
        let (key, token, version) = mark.values();
        let values = [key.into(), token.into(), version.into()];
        transaction.execute_raw(Statement::from_sql_and_values(DbBackend::Postgres, mark.text(), values)).await?;
        transaction.execute_unprepared("UPDATE account SET balance = balance * 100").await?;
        transaction.commit().await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    match done.await? {
        Some(()) => println!("migrated"),
        None => println!("migrated before, by whoever"),
    }
    Ok(())
}
