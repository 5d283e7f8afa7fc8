//! The lock in Redis, and a fence in PostgreSQL.

use std::time::Duration;

use anyhow::{Result, ensure};
use lock_core::{LockErrorKind, LockManager, LockRequest, Renew};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls, error::SqlState};

use crate::{Fleet, fleet};

/// The balance of the account at the beginning.
const START: i64 = 1_000_000;

/// The SQLSTATE of a write that came too late.
const STALE: &str = "LK002";

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) async fn run(args: &Fleet, admits: bool) -> Result<()> {
    if args.worker {
        return work(args, admits).await;
    }
    // The first session makes the schema with the fence.
    LockManager::connect(&args.postgres).await?.shutdown(Duration::from_secs(5)).await;
    let books = connect(&args.postgres).await?;
    books
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS account, entry;
             CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL);
             CREATE TABLE entry (id bigserial PRIMARY KEY, balance bigint NOT NULL);
             DELETE FROM lock_core.fence WHERE resource = 'account:7';
             INSERT INTO account VALUES (7, {START});"
        ))
        .await?;
    let locks = LockManager::connect(&args.redis).await?;
    let [killed, stopped] = fleet::run(args, &locks, "account:7", true).await?;
    let row = books.query_one("SELECT (SELECT balance FROM account), (SELECT count(*) FROM entry)", &[]).await?;
    let (balance, entries): (i64, i64) = (row.get(0), row.get(1));
    println!("{killed} kills and {stopped} stops; {entries} entries, and a balance of {balance}");
    ensure!(entries > 0, "nothing was written");
    ensure!(balance == START - entries, "{} entries were lost: a write came too late", balance + entries - START);
    println!("the books agree");
    Ok(())
}

async fn work(args: &Fleet, admits: bool) -> Result<()> {
    let locks = LockManager::connect(&args.redis).await?;
    let mut database = connect(&args.postgres).await?;
    let turns = async {
        loop {
            // Without the watchdog, a process that is stopped loses its lock a second later.
            let request = locks.lock("account:7").with_ttl(Duration::from_secs(1)).with_renew(Renew::Off);
            if let Err(error) = turn(request, &mut database, admits).await {
                let stale = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
                let lost = error.downcast_ref::<lock_core::LockError>().map(lock_core::LockError::kind);
                ensure!(stale.map(SqlState::code) == Some(STALE) || lost.is_some(), error);
                ensure!(lost != Some(LockErrorKind::Misconfigured), error);
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

/// Takes one from the account. The program computes the balance, so an `UPDATE` alone would not do.
async fn turn(request: LockRequest, database: &mut Client, admits: bool) -> Result<()> {
    let guard = request.await?;
    let transaction = database.transaction().await?;
    if admits {
        // From here on nobody with an older token is admitted, and those who were admitted before have committed.
        let admit = lock_postgres::admit("account:7", guard.token());
        transaction.execute(admit.text(), &[&admit.key(), &admit.token()]).await?;
    }
    let balance: i64 = transaction.query_one("SELECT balance FROM account WHERE id = 7", &[]).await?.get(0);
    sleep(Duration::from_millis(10)).await;
    let left = balance - 1;
    transaction.execute("UPDATE account SET balance = $1 WHERE id = 7", &[&left]).await?;
    transaction.execute("INSERT INTO entry (balance) VALUES ($1)", &[&left]).await?;
    transaction.commit().await?;
    guard.release().await?;
    Ok(())
}
