//! diesel-async: one write of an existing table, under a lock that nobody else can get before the commit; and a migration whose mark is in
//! its transaction.

use diesel::sql_query;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use lock_core::LockManager;
use lock_store::JobVersion;
use lock_postgres as _; // enters the scheme

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let mut db = AsyncPgConnection::establish(&url).await?;
    let locks = LockManager::connect(&url).await?;

    let guard = locks.lock("account:7").await?;
    let pin = lock_postgres::pin(&guard);
    db.transaction::<_, diesel::result::Error, _>(async |db| {
        sql_query(pin.text()).bind::<Text, _>(pin.key()).bind::<BigInt, _>(pin.token()).execute(db).await?;
        sql_query("UPDATE account SET balance = balance - 10 WHERE id = 7").execute(db).await?;
        Ok(())
    })
    .await?;
    guard.release().await?;
    println!("account 7 is written");

    let version = JobVersion::new("v44")?;
    let done = locks.lock("migrate:account").once_for("v44").run(async |guard| {
        let mark = lock_postgres::mark_done(guard, &version);
        db.transaction::<_, diesel::result::Error, _>(async |db| {
            let statement = sql_query(mark.text()).bind::<Text, _>(mark.key()).bind::<BigInt, _>(mark.token());
            statement.bind::<Text, _>(mark.version()).execute(db).await?;
            sql_query("UPDATE account SET balance = balance * 100").execute(db).await?;
            Ok(())
        })
        .await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    match done.await? {
        Some(()) => println!("migrated"),
        None => println!("migrated before, by whoever"),
    }
    Ok(())
}
