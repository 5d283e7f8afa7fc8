//! Sessions of the server, and managers of locks on it.

use std::time::Duration;

use lock_core::{LockManager, Wait};
use lock_postgres::PostgresStore;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::Result;
use crate::contestant::TTL_MS;

/// A manager with connections of its own, as a process has, and the lease that every contestant asks for.
pub(super) async fn manager(url: &str) -> Result<LockManager> {
    let ttl = Duration::from_millis(TTL_MS);
    let builder = LockManager::builder(PostgresStore::new(url)?).with_ttl(ttl).with_wait(Wait::Forever);
    let locks = builder.build()?;
    locks.ping().await?;
    Ok(locks)
}

/// A session, with nothing of ours in it.
pub(super) async fn session(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A session that listens, and tells of each message.
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
