//! Sessions of the server, and lock managers on it.

use std::time::Duration;

use lock_core::{LockManager, Wait};
use lock_postgres::PostgresStore;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::Result;
use crate::contestant::TTL_MS;

/// A manager with connections of its own, as a process has, and with the lease of every contestant.
pub(super) async fn manager(url: &str) -> Result<LockManager> {
    let ttl = Duration::from_millis(TTL_MS);
    let builder = LockManager::builder(PostgresStore::new(url)?).with_ttl(ttl).with_wait(Wait::Forever);
    let locks = builder.build()?;
    locks.ping().await?;
    Ok(locks)
}

/// The statements of a program without this library: one takes a free lock, one frees it.
pub(super) const PAIR: [&str; 2] = [
    "SELECT outcome FROM lock_core.acquire_v2(ARRAY[$1::text], ARRAY[$2::text::uuid], '{30000}', '{0}', '{x}', \
     '{9000000000000000}', '{NULL}', '{0}', '{0}', 'on')",
    "SELECT freed FROM lock_core.release_v2(ARRAY[$1::text], ARRAY[$2::text::uuid], '{0}', '{NULL}', '{NULL}', \
     '{NULL}', 'on')",
];

/// Takes and frees a lock without contention, with two statements of one session.
pub(super) async fn bare_pair(client: &Client, pair: &[Statement; 2], key: &str, owner: &str) -> Result<()> {
    let outcome: String = client.query_one(&pair[0], &[&key, &owner]).await?.get(0);
    let freed: bool = client.query_one(&pair[1], &[&key, &owner]).await?.get(0);
    if outcome != "granted" || !freed {
        return Err(format!("a key that nobody else wants: {outcome}, and freed: {freed}").into());
    }
    Ok(())
}

/// A session without anything of this library.
pub(super) async fn session(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A session that listens on a channel and forwards each message.
pub(super) async fn listener(url: &str, channel: &str) -> Result<(Client, tokio::sync::mpsc::UnboundedReceiver<()>)> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) && sender.send(()).is_err() {
                return;
            }
        }
    });
    client.batch_execute(&format!("LISTEN {channel}")).await?;
    Ok((client, heard))
}
