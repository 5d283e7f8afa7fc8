//! How to reach a server, where a URL cannot say it.

use std::error::Error;
use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::RedisStore;
use crate::connection::connect::Settings;
use crate::connection::credentials::{Credentials, Provider};
#[cfg(feature = "tls")]
use crate::connection::pem::Pem;
use crate::connection::url::add_addresses;
use lock_store::types::error::{LockError, Result};
use lock_store::types::url::StoreUrl;

/// In less no connection opens, over a network.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(10);

const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Builds a [`RedisStore`] that needs more than a URL. Made by [`RedisStore::builder`].
///
/// ```no_run
/// use lock_core::{Credentials, RedisStore};
/// use std::time::Duration;
///
/// # use lock_redis as lock_core; async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
/// # fn demo() -> Result<RedisStore, Box<dyn std::error::Error>> {
/// let store = RedisStore::builder("rediss://redis.internal:6380")
///     .certificate_authority(std::fs::read("ca.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
///     .credentials(async || Ok(Credentials::new(token().await?).valid_for(Duration::from_secs(900))))
///     .client_name("billing")
///     .connect_timeout(Duration::from_secs(2))
///     .build()?;
/// # Ok(store)
/// # }
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    url: StoreUrl,
    addresses: Vec<String>,
    settings: Settings,
}

/// Hides the URL, which may have a password in any of its parts, and the addresses, of which each may be a whole URL.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Starts to build a store on the server of a URL, as in [`new`](Self::new).
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::of(StoreUrl::read(&url.into()))
    }
}

impl RedisStoreBuilder {
    pub(crate) fn of(url: StoreUrl) -> Self {
        Self { url, addresses: Vec::new(), settings: Settings::default() }
    }

    /// Adds addresses of the sentinels, or of the nodes of the cluster, to those of the URL, which then needs none of its
    /// own. Each is `host`, `host:port`, an IP address or a [`SocketAddr`](std::net::SocketAddr); the port is 26379 for
    /// a sentinel and 6379 for a node, unless given.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use lock_core::RedisStore;
    ///
    /// let found = [SocketAddr::from(([10, 0, 0, 1], 26379)), SocketAddr::from(([10, 0, 0, 2], 26379))];
    /// let store = RedisStore::builder("redis+sentinel://app:s3cret@/orders").addresses(found).build()?;
    /// let store = RedisStore::builder("redis+cluster://").addresses(["cache-1", "cache-2:7000"]).build()?;
    /// assert_eq!(format!("{store:?}"), "RedisStore(cluster of cache-1:6379,cache-2:7000)");
    /// # use lock_redis as lock_core; Ok::<(), lock_store::LockError>(())
    /// ```
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = impl Display>) -> Self {
        self.addresses.extend(addresses.into_iter().map(|address| address.to_string()));
        self
    }

    /// Trusts servers whose certificate was signed by one of these authorities (PEM), and no others. Default: those
    /// of the machine. A URL can name the files: `rediss://host?ca=ca.pem&cert=client.pem&cert_key=client.key`. Files are read
    /// again for each connection, so they may be renewed in place; what is given here stays as it is.
    #[cfg(feature = "tls")]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.certificates.get_or_insert_default().authority = Some(Pem::Given(pem.into()));
        self
    }

    /// Presents a client certificate to the server, with its chain and its key (PEM).
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (certificate, key) = (Pem::Given(certificate.into()), Pem::Given(key.into()));
        self.settings.certificates.get_or_insert_default().client = Some((certificate, key));
        self
    }

    /// Gets credentials from `provider` instead of the URL: before a connection is opened, and again before
    /// they expire, when every open connection logs in again. If the server refuses credentials, the provider
    /// is asked again too.
    ///
    /// It runs in a thread of its own and may take its time: connections that need its answer wait 4 s for it, then
    /// fail and ask again beside it; connections that are open stay so, and locks that are held are renewed.
    pub fn credentials<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.settings.provider = Some(Provider::new(provider));
        self
    }

    /// Sets the name by which `CLIENT LIST` shows our connections. Default `lock-core:` and the process id.
    pub fn client_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.client_name = name.into();
        self
    }

    /// Limits how long opening a connection may take, including name lookup, handshakes and login. Default
    /// 5 s, at least 10 ms, at most an hour.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_within = timeout;
        self
    }

    /// Builds the store. Opens nothing yet.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) for a URL, an address, a certificate, a key or a
    /// name that cannot be used. The message repeats none of them.
    pub fn build(mut self) -> Result<RedisStore> {
        let Settings { connect_within, client_name, .. } = &self.settings;
        if self.url.take_key_prefix()?.is_some() {
            return Err(LockError::misconfigured(
                "a key_prefix belongs to the manager, not to its store; use LockManager::connect, or key_prefix of \
                 LockManager::builder",
            ));
        }
        if !(MIN_CONNECT_TIMEOUT..=MAX_CONNECT_TIMEOUT).contains(connect_within) {
            return Err(LockError::misconfigured(format!(
                "a connect_timeout of {connect_within:?} is out of bounds; use between {MIN_CONNECT_TIMEOUT:?} and an hour, \
                 for example 5s",
            )));
        }
        if client_name.is_empty() || !client_name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(LockError::misconfigured(
                "the client_name cannot be one; Redis takes printable characters without spaces",
            ));
        }
        add_addresses(&mut self.url, &self.addresses)?;
        RedisStore::parse(self.url, self.settings)
    }
}
