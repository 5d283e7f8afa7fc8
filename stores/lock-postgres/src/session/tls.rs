//! From an address to a connection, over TLS where the URL says so.

#[cfg(feature = "tls")]
mod binding;
#[cfg(feature = "tls")]
mod rustls;

#[cfg(feature = "tls")]
use lock_core::LockError;
use lock_core::Result;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls};

use crate::error::of_connecting;
use crate::session::{password, role};
use crate::url::Settings;

/// Connects, and drives the connection on the current runtime. `heard` is told what the server says by itself.
pub(crate) async fn connect(
    config: &Config,
    settings: &Settings,
    heard: impl Fn(AsyncMessage) + Send + 'static,
) -> Result<(Client, JoinHandle<()>)> {
    let mut config = password::added(config, settings)?;
    let must_write = config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite;
    config.target_session_attrs(TargetSessionAttrs::Any);
    let (client, driver) = open(&config, settings, heard).await?;
    if must_write {
        role::takes_writes(&client, &settings.node).await?;
    }
    Ok((client, driver))
}

async fn open(
    config: &Config,
    settings: &Settings,
    heard: impl Fn(AsyncMessage) + Send + 'static,
) -> Result<(Client, JoinHandle<()>)> {
    let encrypted = config.get_ssl_mode() == SslMode::Require;
    let refused = |error: Error| of_connecting(error, &settings.node, encrypted);
    #[cfg(feature = "tls")]
    if encrypted {
        let verified = rustls::Verified::new(&settings.tls).map_err(|error| {
            LockError::misconfigured(format!("no certificate can be checked: {error}")).with_source(error)
        })?;
        let unproven = |error: Error| match rustls::advice(&error) {
            Some((reason, advice)) => LockError::misconfigured(format!(
                "PostgreSQL at {} does not prove its name: {reason}; {advice}",
                settings.node
            ))
            .with_source(error),
            None => refused(error),
        };
        let (client, connection) = config.connect(verified).await.map_err(unproven)?;
        return Ok((client, drive(connection, heard)));
    }
    let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
    Ok((client, drive(connection, heard)))
}

fn drive<S, T>(mut connection: Connection<S, T>, heard: impl Fn(AsyncMessage) + Send + 'static) -> JoinHandle<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "runs on the store's own runtime, or the keeper's")]
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            heard(message);
        }
    })
}
