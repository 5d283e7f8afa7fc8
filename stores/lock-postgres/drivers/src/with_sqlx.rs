//! sqlx: one write of an existing table, under a lock that nobody else can get before the commit; and a migration whose mark is in its transaction.

use lock_core::LockManager;
use lock_store::JobVersion;
use lock_postgres as _; // enters the scheme

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = sqlx::PgPool::connect(&url).await?;
    let locks = LockManager::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL); INSERT INTO account VALUES (7, 100) ON CONFLICT DO NOTHING")
        .execute(&pool)
        .await?;

    let guard = locks.lock("account:7").await?;
    let mut transaction = pool.begin().await?;
    let pin = lock_postgres::pin(&guard);
    sqlx::query("SELECT lock_core.pin($1, $2)").bind(pin.key()).bind(pin.token()).execute(&mut *transaction).await?;
    sqlx::query("UPDATE account SET balance = balance - 10 WHERE id = 7").execute(&mut *transaction).await?;
    transaction.commit().await?;
    guard.release().await?;

    let (balance,): (i64,) = sqlx::query_as("SELECT balance FROM account WHERE id = 7").fetch_one(&pool).await?;
    println!("account 7 has {balance}");

    let version = JobVersion::new("v42")?;
    let done = locks.lock("migrate:account").once_for("v42").run(async |guard| {
        let mut transaction = pool.begin().await?;
        let mark = lock_postgres::mark_done(guard, &version);
        sqlx::query("SELECT lock_core.mark_done($1, $2, $3)")
            .bind(mark.key())
            .bind(mark.token())
            .bind(mark.version())
            .execute(&mut *transaction)
            .await?;
        sqlx::query("UPDATE account SET balance = balance * 100").execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    match done.await? {
        Some(()) => println!("migrated"),
        None => println!("migrated before, by whoever"),
    }
    Ok(())
}
