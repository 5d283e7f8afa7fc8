//! Where and how a store connects: its URL, its credentials, the settings of its sockets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion,
    RedisConnectionInfo, RedisError,
};

use crate::connection::credentials::{Credentials, Provider};
#[cfg(feature = "tls")]
use crate::connection::pem::Certificates;
use crate::connection::url::{Address, Login, is_host};
use crate::error;
use lock_store::types::error::{LockError, LockErrorKind, Result};

/// How long the operating system waits for a peer that acknowledges nothing. Without this limit, a
/// link that silently drops everything would look alive for a quarter of an hour.
const PEER_SILENCE: Duration = Duration::from_secs(10);

const SUPPORTED: &str = "supported are redis://host:port/db (or valkey://), rediss:// (TLS, with the cargo feature `tls`), \
                         redis+unix:///path?db=0 (or unix://), redis+sentinel://host:26379/service and \
                         redis+cluster://host:port, each with user:password@ where needed; redlock://host,host,host, a quorum of \
                         them, is for managers and lockctl";

/// How a server is reached, beyond its URL.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) connect_within: Duration,
    /// As `CLIENT LIST` shows it.
    pub(crate) client_name: Arc<str>,
    pub(crate) provider: Option<Arc<Provider>>,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<Certificates>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(5),
            client_name: format!("lock-core:{}", std::process::id()).into(),
            provider: None,
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }
}

impl Settings {
    /// Returns the settings for servers of another kind, with credentials of their own, and perhaps without TLS.
    pub(crate) fn of_others(&self, tls: bool) -> Self {
        // Without the feature, there are certificates neither to use nor to leave out.
        #[cfg(not(feature = "tls"))]
        let _ = tls;
        Self {
            provider: None,
            #[cfg(feature = "tls")]
            certificates: self.certificates.clone().filter(|_| tls),
            ..self.clone()
        }
    }
}

/// One server, and how to reach it.
#[derive(Clone)]
pub(crate) struct Target {
    client: redis::Client,
    /// Host and port, or the path of the socket, and the database unless it is 0. Never a credential.
    node: String,
    pub(crate) settings: Settings,
    /// Whether a server that is a replica must not be used.
    pub(crate) master_only: bool,
}

impl Target {
    /// Reads a URL. Opens nothing.
    ///
    /// No error repeats any part of the URL: a password that should have been percent-encoded can end up in any.
    pub(crate) fn parse(url: &str, settings: Settings) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(LockError::misconfigured(format!("this is not a URL of a Redis server; {SUPPORTED}")));
        };
        match scheme {
            "redis" | "valkey" | "redis+unix" | "unix" => {}
            "rediss" | "valkeys" if cfg!(feature = "tls") => {}
            "rediss" | "valkeys" => return Err(needs_tls()),
            "memory" => {
                return Err(LockError::misconfigured(
                    "locks in memory:// are seen by their own process only; name the server that all processes share",
                ));
            }
            _ => {
                return Err(LockError::misconfigured(format!(
                    "the Redis store does not serve URLs of this scheme; {SUPPORTED}"
                )));
            }
        }
        if rest.ends_with("#insecure") {
            return Err(LockError::misconfigured(
                "the Redis URL asks not to check certificates, which lock-core always does; remove #insecure and \
                 install the authority that signed the server's certificate",
            ));
        }
        let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if !scheme.ends_with("unix") && rest[authority..].contains('@') {
            return Err(LockError::misconfigured(
                "the Redis URL has an @ after its host, as when a password contains /, ? or #; percent-encode \
                 the password",
            ));
        }
        Self::check(scheme.ends_with("unix"), rest)?;
        let info: ConnectionInfo = url.parse().map_err(|_: RedisError| {
            let part = unreadable_part(rest);
            LockError::misconfigured(format!(
                "the Redis URL cannot be read{part}; percent-encode special characters of user and password; {SUPPORTED}"
            ))
        })?;
        if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = info.addr()
            && !is_host(host)
        {
            return Err(LockError::misconfigured(format!(
                "the Redis URL names a host that cannot be one; percent-encode special characters of user and password; \
                 {SUPPORTED}"
            )));
        }
        Self::of(info, settings)
    }

    /// One of several servers that a URL names. Its parts are decoded.
    pub(crate) fn one_of(tls: bool, login: &Login, address: &Address, db: i64, settings: Settings) -> Result<Self> {
        let (host, port) = (address.host.clone(), address.port);
        let address = match tls {
            true if !cfg!(feature = "tls") => return Err(needs_tls()),
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let mut who = RedisConnectionInfo::default().set_db(db);
        if let Some(user) = &login.user {
            who = who.set_username(user);
        }
        if let Some(password) = &login.password {
            who = who.set_password(password);
        }
        let info =
            address.into_connection_info().map_err(|_| LockError::misconfigured("the Redis URL cannot be read"))?;
        Self::of(info.set_redis_settings(who), settings)
    }

    /// Refuses what the client would overlook. `rest` is the URL without its scheme.
    fn check(is_socket: bool, rest: &str) -> Result<()> {
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts = address.split('/').next().and_then(|authority| authority.rsplit('@').next());
        if !is_socket && hosts.is_some_and(|hosts| hosts.contains(',')) {
            return Err(LockError::misconfigured(
                "the Redis URL names several hosts, and redis:// is for one server; write redis+sentinel://host,host/service, \
                 redis+cluster://host,host or redlock://host,host,host",
            ));
        }
        if is_socket && address.contains(['@', '=', '&']) {
            return Err(LockError::misconfigured(
                "the socket's path in the URL contains @, = or &: percent-encode them, or write ? before parameters",
            ));
        }
        // Which of RESP2 and RESP3 is spoken is not a choice here, but other clients read the same URL.
        let known: &[&str] = if is_socket { &["db", "user", "pass", "protocol"] } else { &["protocol"] };
        let is_known = |parameter: &str| known.contains(&parameter.split('=').next().unwrap_or_default());
        if !query.split('&').filter(|parameter| !parameter.is_empty()).all(is_known) {
            return Err(LockError::misconfigured(format!(
                "the Redis URL has an unknown parameter; it takes key_prefix, acks \
                 and fsync{}. ttl and wait are options of locks",
                if is_socket { ", db, user and pass" } else { "; a database is its path, as in redis://host:6379/1" },
            )));
        }
        Ok(())
    }

    fn of(info: ConnectionInfo, settings: Settings) -> Result<Self> {
        let mut node = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            address => address.to_string(),
        };
        let login = info.redis_settings().clone();
        if login.db() < 0 {
            return Err(LockError::misconfigured(
                "the databases of Redis count from 0; correct the number at the end of the URL",
            ));
        }
        if login.db() != 0 {
            node = format!("{node}/{}", login.db());
        }
        #[cfg(feature = "tls")]
        if settings.certificates.is_some() && !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(LockError::misconfigured("certificates are for TLS; write rediss:// in the URL"));
        }
        // RESP3, because its push channel shows the end of a connection. The name of the library comes later: the client
        // drops the words of a server that refuses the first of several commands and ends the connection.
        let login = login.set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        let info = info.set_redis_settings(login).set_tcp_settings(tcp_settings());
        match redis::Client::open(info) {
            Ok(client) => Ok(Self { client, node, settings, master_only: false }),
            Err(error) => Err(error::connecting(&node, &error)),
        }
    }

    /// Returns a target for another server, with the same credentials and settings.
    pub(crate) fn sibling(&self, host: &str, port: u16) -> Result<Self> {
        let (info, host) = (self.client.get_connection_info().clone(), host.to_owned());
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let other = Self::of(info.set_addr(address), self.settings.clone())?;
        Ok(Self { master_only: self.master_only, ..other })
    }

    /// Returns the host. A socket is on this one.
    pub(crate) fn host(&self) -> &str {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "localhost",
        }
    }

    /// Returns the server's name, without credentials.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Returns the provider of credentials, if they do not come from the URL.
    pub(crate) fn provider(&self) -> Option<&Arc<Provider>> {
        self.settings.provider.as_ref()
    }

    /// Opens a connection with the current credentials.
    pub(crate) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> std::result::Result<MultiplexedConnection, RedisError> {
        #[cfg(feature = "tls")]
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread installs a provider at the same moment, which works just as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let credentials = match self.provider() {
            Some(provider) => Some(provider.current().await.map_err(std::io::Error::other)?.1),
            None => None,
        };
        let opened = self.connect_with(config, credentials.as_ref()).await;
        if let (Some(provider), Some(credentials), Err(error)) = (self.provider(), &credentials, &opened)
            && error::connecting(&self.node, error).kind() == LockErrorKind::Misconfigured
        {
            provider.forget(credentials);
        }
        opened
    }

    async fn connect_with(
        &self,
        config: &AsyncConnectionConfig,
        credentials: Option<&Credentials>,
    ) -> std::result::Result<MultiplexedConnection, RedisError> {
        let info = self.client.get_connection_info().clone();
        let mut login = info.redis_settings().clone();
        let db = login.db();
        if let Some(credentials) = credentials {
            login = login.set_password(&*credentials.password);
            if let Some(username) = &credentials.username {
                login = login.set_username(username);
            }
        }
        let password = login.password().map(str::to_owned);
        let info = info.set_redis_settings(login.set_db(0));
        #[cfg(feature = "tls")]
        let client = match &self.settings.certificates {
            Some(certificates) => {
                let now = certificates.current().await.map_err(std::io::Error::other)?;
                redis::Client::build_with_tls(info, now)?
            }
            None => redis::Client::open(info)?,
        };
        #[cfg(not(feature = "tls"))]
        let client = redis::Client::open(info)?;
        let opening = async {
            let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
            for (name, value) in [("LIB-NAME", "lock-core"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
                // For people reading CLIENT LIST. Servers before 7.2 refuse it.
                let mut about = redis::cmd("CLIENT");
                about.arg("SETINFO").arg(name).arg(value).set_no_response(true);
                connection.send_packed_command(&about).await?;
            }
            if db != 0 {
                connection.send_packed_command(redis::cmd("SELECT").arg(db)).await?.extract_error()?;
            }
            Ok(connection)
        };
        opening.await.map_err(|error| error::without(error, password.as_deref()))
    }
}

/// Names the wrong part of a URL, if it can be found, without repeating it.
fn unreadable_part(rest: &str) -> &'static str {
    let (address, _) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit(']').next().and_then(|end| end.rsplit_once(':')).map(|(_, port)| port);
    if port.is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err()) {
        ": its port is no number up to 65535"
    } else if !path.is_empty() && path.parse::<i64>().is_err() {
        ": the database at its end is no number"
    } else {
        ""
    }
}

/// Hides the client, which knows the password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.node)
    }
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(PEER_SILENCE).with_interval(Duration::from_secs(3));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(PEER_SILENCE);
    settings
}

fn needs_tls() -> LockError {
    LockError::misconfigured(
        "rediss:// and valkeys:// need TLS, which is not compiled in; enable the cargo feature `tls` of lock-core",
    )
}

#[cfg(test)]
#[path = "tests/connect.rs"]
mod tests;
