//! diesel-async: one write of an existing table, under a lock that nobody else can get before the commit.

use diesel::sql_query;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use lock_core::LockManager;
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
    Ok(())
}
