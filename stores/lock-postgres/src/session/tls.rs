//! From an address to a connection, over TLS where the URL says so.

#[cfg(feature = "tls")]
mod binding;
#[cfg(feature = "tls")]
mod rustls;

#[cfg(feature = "tls")]
use lock_core::LockError;
use lock_core::Result;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, Error, NoTls};

use crate::error::of_connecting;
use crate::session::{password, role};
use crate::url::Settings;

/// Drives a connection on the runtime that it was opened on, until this is dropped.
pub(crate) struct Driver(JoinHandle<()>);

impl Driver {
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the connection has ended, which it does after the last answer if its client is gone.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects to the one host of these settings, and drives the connection on the current runtime. `heard` is told what the server says by
/// itself.
pub(crate) async fn connect(
    config: &Config,
    settings: &Settings,
    name: &str,
    heard: impl Fn(AsyncMessage) + Send + 'static,
) -> Result<(Client, Driver)> {
    let mut config = password::added(config, settings)?;
    let must_write = config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite;
    config.target_session_attrs(TargetSessionAttrs::Any);
    let (client, driver) = open(&config, settings, name, heard).await?;
    if must_write {
        role::takes_writes(&client, name).await?;
    }
    Ok((client, driver))
}

async fn open(
    config: &Config,
    settings: &Settings,
    name: &str,
    heard: impl Fn(AsyncMessage) + Send + 'static,
) -> Result<(Client, Driver)> {
    let encrypted = config.get_ssl_mode() == SslMode::Require;
    let refused = |error: Error| of_connecting(error, name, encrypted);
    #[cfg(feature = "tls")]
    if encrypted {
        let unproven = |error: Error| match rustls::advice(&error) {
            Some((reason, advice)) => {
                LockError::misconfigured(format!("PostgreSQL at {name} does not prove its name: {reason}; {advice}"))
                    .with_source(error)
            }
            None => refused(error),
        };
        let (client, connection) = config.connect(verified(settings)?).await.map_err(unproven)?;
        return Ok((client, drive(connection, heard)));
    }
    let _ = settings;
    let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
    Ok((client, drive(connection, heard)))
}

#[cfg(feature = "tls")]
fn verified(settings: &Settings) -> Result<rustls::Verified> {
    rustls::Verified::new(&settings.tls)
        .map_err(|error| LockError::misconfigured(format!("no certificate can be checked: {error}")).with_source(error))
}

/// Asks the server to cancel what the session of this token waits for.
pub(crate) async fn cancel(token: &CancelToken, settings: &Settings) {
    #[cfg(feature = "tls")]
    if settings.config.get_ssl_mode() == SslMode::Require {
        if let Ok(verified) = verified(settings) {
            let _ = token.cancel_query(verified).await;
        }
        return;
    }
    let _ = settings;
    // Its statement ends by its own limits if this does not arrive.
    let _ = token.cancel_query(NoTls).await;
}

/// Reads the number of the server's process, as the server or what answers for it has told it at the start. The driver shows that number
/// only in the request to cancel, which is written into the void here.
pub(crate) async fn process_of(client: &Client) -> i32 {
    let (near, mut far) = duplex(64);
    let token = client.cancel_token();
    let write = async {
        #[cfg(feature = "tls")]
        let _ = token.cancel_query_raw(near, rustls::Plain).await;
        #[cfg(not(feature = "tls"))]
        let _ = token.cancel_query_raw(near, NoTls).await;
    };
    let read = async {
        // A request is its length, its kind, and here the number and a secret. Before it a session with TLS asks for that.
        let mut request = [0; 16];
        let _ = far.read_exact(&mut request[..8]).await;
        if request[..4] == [0, 0, 0, 8] {
            let _ = far.write_all(b"S").await;
            let _ = far.read_exact(&mut request[..8]).await;
        }
        let _ = far.read_exact(&mut request[8..]).await;
        i32::from_be_bytes([request[8], request[9], request[10], request[11]])
    };
    tokio::join!(write, read).1
}

fn drive<S, T>(mut connection: Connection<S, T>, heard: impl Fn(AsyncMessage) + Send + 'static) -> Driver
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "runs on the store's own runtime, or the keeper's")]
    Driver(tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            heard(message);
        }
    }))
}
