//! Where and how a store connects: its URL, the settings of its sockets, the first exchange.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo, RedisError, Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::{LockError, LockErrorKind, Result};
use crate::redis::credentials::Provider;
use crate::redis::error;
use crate::redis::introduction::Introduction;
use crate::redis::keys::CLOCK;
use crate::redis::link::{ClientId, ServerTime};
use crate::redis::settings::Settings;
use crate::redis::steps;

/// How long the operating system waits for a peer that acknowledges nothing. Without this limit, a
/// link that silently drops everything would look alive for a quarter of an hour.
const PEER_SILENCE: Duration = Duration::from_secs(10);

/// How many commands may queue before callers wait. The client's own default of 50 caps what is
/// sent in one write, and makes 1,000 tasks wait for the queue instead of for the server.
const QUEUED_COMMANDS: usize = 4096;

/// How many bytes are gathered before they are written.
const WRITE_BUFFER: usize = 64 * 1024;

const SUPPORTED: &str = "supported are redis://host:port/db, rediss:// (TLS, with the cargo feature `tls`), \
                         redis+unix:///path?db=0 (or unix://) and redis+sentinel://host:26379/service, each with \
                         user:password@ where needed";

/// One server, and how to reach it.
#[derive(Clone)]
pub(super) struct Target {
    client: redis::Client,
    /// Host and port, or the path of the socket, and the database unless it is 0. Never a credential.
    node: String,
    settings: Settings,
    /// Whether a server that is a replica must not be used.
    master_only: bool,
}

impl Target {
    /// Reads a URL. Opens nothing.
    ///
    /// No error repeats any part of the URL but its scheme: a password that should have been
    /// percent-encoded can end up in any other part.
    pub(super) fn parse(url: &str, settings: Settings) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(misconfigured(format!("this is not a URL of a Redis server; {SUPPORTED}")));
        };
        match scheme {
            "redis" | "redis+unix" | "unix" => {}
            "rediss" if cfg!(feature = "tls") => {}
            "rediss" => {
                return Err(misconfigured(
                    "rediss:// needs TLS, which is not compiled in; enable the cargo feature `tls` of lock-core",
                ));
            }
            _ => return Err(misconfigured(format!("the Redis store does not serve {scheme:?} URLs; {SUPPORTED}"))),
        }
        if rest.ends_with("#insecure") {
            return Err(misconfigured(
                "the Redis URL asks not to check certificates, which lock-core always does; remove #insecure and \
                 install the authority that signed the server's certificate",
            ));
        }
        let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if !scheme.ends_with("unix") && rest[authority..].contains('@') {
            return Err(misconfigured(
                "the Redis URL has an @ after its host, as when a password contains /, ? or #; percent-encode \
                 the password",
            ));
        }
        let info: ConnectionInfo = url.parse().map_err(|_: RedisError| {
            misconfigured(format!(
                "the Redis URL cannot be read; percent-encode special characters of user and password; {SUPPORTED}"
            ))
        })?;
        Self::of(info, settings)
    }

    fn of(info: ConnectionInfo, settings: Settings) -> Result<Self> {
        let mut node = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            address => address.to_string(),
        };
        let login = info.redis_settings().clone();
        if login.db() != 0 {
            node = format!("{node}/{}", login.db());
        }
        // RESP3, because its push channel shows the end of a connection.
        let login = login.set_protocol(ProtocolVersion::RESP3).set_lib_name("lock-core", env!("CARGO_PKG_VERSION"));
        let info = info.set_redis_settings(login).set_tcp_settings(tcp_settings());
        #[cfg(feature = "tls")]
        if let Some(certificates) = settings.certificates.clone() {
            if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
                return Err(misconfigured("certificates are for TLS; write rediss:// in the URL"));
            }
            // Its error may quote what it cannot read.
            let client = redis::Client::build_with_tls(info, certificates).map_err(|_: RedisError| {
                misconfigured("the certificates or the key cannot be read; give them as PEM, the key unencrypted")
            })?;
            return Ok(Self { client, node, settings, master_only: false });
        }
        match redis::Client::open(info) {
            Ok(client) => Ok(Self { client, node, settings, master_only: false }),
            Err(error) => Err(error::connecting(&node, &error)),
        }
    }

    /// Refuses every server that is a replica.
    pub(super) fn must_be_master(mut self) -> Self {
        self.master_only = true;
        self
    }

    /// Returns a target for another server, with the same credentials and settings.
    pub(super) fn sibling(&self, host: &str, port: u16) -> Result<Self> {
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
    pub(super) fn host(&self) -> &str {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "localhost",
        }
    }

    /// Returns the server's name, without credentials.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Returns the provider of credentials, if they do not come from the URL.
    pub(super) fn provider(&self) -> Option<&Provider> {
        self.settings.provider.as_deref()
    }

    /// Opens a connection with the current credentials.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> std::result::Result<MultiplexedConnection, RedisError> {
        #[cfg(feature = "tls")]
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread installs a provider at the same moment, which works just
            // as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let Some(provider) = self.provider() else {
            return self.client.get_multiplexed_async_connection_with_config(config).await;
        };
        let credentials = provider.current().await.map_err(std::io::Error::other)?;
        let info = self.client.get_connection_info().clone();
        let mut login = info.redis_settings().clone().set_password(credentials.password());
        if let Some(username) = credentials.username() {
            login = login.set_username(username);
        }
        let client = redis::Client::open(info.set_redis_settings(login))?;
        let opened = client.get_multiplexed_async_connection_with_config(config).await;
        if let Err(error) = &opened
            && error::connecting(&self.node, error).kind() == LockErrorKind::Misconfigured
        {
            provider.forget(&credentials);
        }
        opened
    }

    /// Opens a connection whose driver runs on the current runtime and owns `presence`, which is dropped when
    /// the driver ends.
    pub(super) async fn open(&self, presence: impl Send + Sync + 'static) -> Result<Greeting> {
        #[expect(clippy::disallowed_methods, reason = "bounds a task of this runtime that no caller drives")]
        let opened = tokio::time::timeout(self.settings.connect_within, self.greet(presence)).await;
        match opened {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => Err(error::connecting(&self.node, &error)),
            Err(_) => Err(LockError::not_executed(format!(
                "{} did not answer within {:?} of connecting; check the network and whether it is stalled",
                self.node, self.settings.connect_within,
            ))),
        }
    }

    /// Opens a connection that listens to some channels, and to changes of the keys it reads.
    pub(super) async fn listen(&self, channels: &[&str]) -> Result<Listening> {
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUED_COMMANDS)
            .set_push_sender(sender);
        let subscribing = async {
            let mut connection = self.connect(&config).await?;
            connection.subscribe(channels).await?;
            let asking = tracking();
            let tracks = tracks(&connection.send_packed_commands(&asking, 0, asking.len()).await?);
            let mut asking = redis::pipe();
            introduce(&mut asking);
            let mut answers = connection.send_packed_commands(&asking, 0, asking.len()).await?.into_iter();
            let client = closable(&mut answers);
            let introduction = Introduction::read(answers.next(), answers.next());
            Ok::<_, RedisError>((connection, tracks, client, introduction))
        };
        #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
        let opened = tokio::time::timeout(self.settings.connect_within, subscribing).await;
        match opened {
            Ok(Ok((connection, tracks, client, introduction))) => {
                introduction.check(&self.node, self.master_only)?;
                Ok(Listening { connection, pushes, tracks, client, history: introduction.history, moves: None })
            }
            Ok(Err(error)) => Err(error::executing(&self.node, "subscribe to grants", &error)),
            Err(_) => Err(LockError::not_executed(format!(
                "{} did not answer within {:?} of subscribing; check the network and whether it is stalled",
                self.node, self.settings.connect_within,
            ))),
        }
    }

    async fn greet(&self, presence: impl Send + Sync + 'static) -> std::result::Result<Result<Greeting>, RedisError> {
        let config = AsyncConnectionConfig::new()
            // The keeper has one deadline per operation; a timer per command would cost a tenth.
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUED_COMMANDS)
            .set_write_backpressure_boundary(WRITE_BUFFER)
            .set_push_sender(move |_push| {
                let _ = &presence;
                Ok::<(), redis::aio::SendError>(())
            });
        let mut connection = self.connect(&config).await?;
        let mut greeting = redis::pipe();
        greeting.cmd("TIME");
        // For people reading CLIENT LIST. A user without the permission stays unnamed.
        greeting.cmd("CLIENT").arg("SETNAME").arg(&*self.settings.client_name);
        introduce(&mut greeting);
        // Loads the script that is sent together with attempts. Called without locks it does nothing.
        greeting.cmd("EVAL").arg(steps::release_script()).arg(1).arg(CLOCK).arg(0);
        let answers = connection.send_packed_commands(&greeting, 0, greeting.len()).await?;
        let received = Clock::system().now();
        let mut answers = answers.into_iter();
        let time = match answers.next() {
            Some(Value::ServerError(refusal)) => Err(error::executing(&self.node, "read its time", &refusal.into())),
            Some(answer) => redis::from_redis_value(answer)
                .map(|(seconds, micros): (u64, u64)| ServerTime::new(seconds * 1_000_000 + micros, received))
                .map_err(|_| error::unreadable(&self.node, "TIME")),
            None => Err(error::unreadable(&self.node, "TIME")),
        };
        let _named = answers.next();
        let client = closable(&mut answers);
        let introduction = Introduction::read(answers.next(), answers.next());
        if let Err(error) = introduction.check(&self.node, self.master_only) {
            return Ok(Err(error));
        }
        let Introduction { mode, history, .. } = introduction;
        let cluster = mode.as_deref() == Some("cluster");
        Ok(time.map(|time| Greeting { connection, time, client, cluster, history, moves: None }))
    }
}

/// An opened connection, and what the server said.
pub(super) struct Greeting {
    pub(super) connection: MultiplexedConnection,
    pub(super) time: ServerTime,
    /// How the server identifies the connection, if it is willing to close it.
    pub(super) client: Option<ClientId>,
    /// Whether the server is a node of a cluster.
    pub(super) cluster: bool,
    /// The name of the history of the server's data, if it tells.
    pub(super) history: Option<Arc<str>>,
    /// Changes when the server turns out to be at another address, if that can happen.
    pub(super) moves: Option<watch::Receiver<u64>>,
}

/// A connection that listens.
pub(super) struct Listening {
    pub(super) connection: MultiplexedConnection,
    /// The messages that it receives, and its end.
    pub(super) pushes: UnboundedReceiver<PushInfo>,
    /// Whether the server reports changes to the keys that were read over it.
    pub(super) tracks: bool,
    /// As of [`Greeting`].
    pub(super) client: Option<ClientId>,
    /// As of [`Greeting`].
    pub(super) history: Option<Arc<str>>,
    /// As of [`Greeting`].
    pub(super) moves: Option<watch::Receiver<u64>>,
}

/// Asks what the connection and the server are.
fn introduce(message: &mut Pipeline) {
    message.cmd("CLIENT").arg("INFO");
    // Checks whether we may close connections: a command that nobody awaits must not take a lock later, or raise a
    // lease.
    message.cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX);
    // Every user may ask what the server is.
    message.cmd("HELLO");
    message.cmd("INFO").arg("replication");
}

/// Reads the first two answers. `None` if the server is not willing to close the connection.
fn closable(answers: &mut impl Iterator<Item = Value>) -> Option<ClientId> {
    match (answers.next(), answers.next()) {
        (Some(info), Some(Value::Int(_))) => ClientId::read(&redis::from_redis_value::<String>(info).ok()?),
        _ => None,
    }
}

/// Asks the server to report changes to keys that are read over this connection from now on, and reads one,
/// which may be forbidden where tracking is not.
pub(super) fn tracking() -> Pipeline {
    let mut asking = redis::pipe();
    // This variable exists since 7.0, the version that tracking renewals need for `PEXPIRE GT`.
    asking.cmd("EVAL").arg("return redis.REDIS_VERSION_NUM and 1 or 0").arg(0);
    // Off first, because this key need not be tracked.
    asking.cmd("CLIENT").arg("TRACKING").arg("OFF");
    asking.cmd("MGET").arg(CLOCK);
    asking.cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP");
    asking
}

/// Returns whether the server will. A node of a cluster that does not serve this key says so, which is no refusal.
pub(super) fn tracks(answers: &[Value]) -> bool {
    let [Value::Int(1), _, read, Value::Okay] = answers else { return false };
    !matches!(read, Value::ServerError(error) if error.code() == "NOPERM")
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

fn misconfigured(text: impl Into<std::borrow::Cow<'static, str>>) -> LockError {
    LockError::misconfigured(text)
}

#[cfg(test)]
mod tests {
    use super::Target;
    use crate::error::{LockErrorKind, Result};
    use crate::redis::settings::Settings;

    fn parse(url: &str) -> Result<Target> {
        Target::parse(url, Settings::default())
    }

    #[test]
    fn nodes_carry_no_credentials() {
        for (url, node) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://user:s3cret@10.0.0.1:7000/3", "10.0.0.1:7000/3"),
            ("redis://:s3cret%2F@h", "h:6379"),
            ("redis://[::1]:7000", "[::1]:7000"),
            ("redis+unix:///run/redis.sock?db=2&pass=s3cret", "/run/redis.sock/2"),
            ("unix:///run/redis.sock", "/run/redis.sock"),
        ] {
            let target = parse(url).unwrap();
            assert_eq!(target.node(), node, "{url}");
            assert!(!format!("{target:?}").contains("s3cret"), "{target:?}");
        }
    }

    #[test]
    fn another_server_is_reached_in_the_same_way() {
        let [tls, settings] = ["rediss://user:s3cret@h:7000", "redis://user:s3cret@h:7000/3"];
        for (url, node) in [(settings, "10.0.0.2:7001/3"), (tls, "10.0.0.2:7001")] {
            let Ok(target) = parse(url) else { continue };
            let other = target.sibling("10.0.0.2", 7001).unwrap();
            assert_eq!((other.node(), other.host(), target.host()), (node, "10.0.0.2", "h"));
            let [one, two] = [&target, &other].map(|target| target.client.get_connection_info());
            let [ours, theirs] = [one, two].map(redis::ConnectionInfo::redis_settings);
            assert_eq!(
                (ours.username(), ours.password(), ours.db()),
                (theirs.username(), theirs.password(), theirs.db())
            );
            assert_eq!(theirs.password(), Some("s3cret"));
            assert_eq!(
                matches!(one.addr(), redis::ConnectionAddr::TcpTls { .. }),
                matches!(two.addr(), redis::ConnectionAddr::TcpTls { .. })
            );
        }
        let socket = parse("unix:///run/redis.sock?pass=s3cret").unwrap();
        assert_eq!(socket.sibling(socket.host(), 7001).unwrap().node(), "localhost:7001");
    }

    #[test]
    fn bad_urls_say_what_to_write_and_repeat_nothing() {
        for (url, says) in [
            ("", "redis://host:port/db"),
            ("localhost:6379", "redis://host:port/db"),
            ("memory://", "redis+unix:///path"),
            ("http://s3cret@h", "does not serve \"http\""),
            ("redis://", "cannot be read"),
            ("redis://:s3/cret@h", "percent-encode"),
            ("redis://s3cret?@h", "percent-encode"),
            ("redis://:s3cret@h:port", "cannot be read"),
            ("redis://:s3cret@h/nine", "cannot be read"),
            ("redis://0.0.0.0", "cannot be read"),
            ("redis://:s3cret@h/#insecure", "always does"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!format!("{error:?}").contains("s3"), "{error:?}");
        }
    }

    #[test]
    fn tls_is_a_feature() {
        let target = parse("rediss://:s3cret@h");
        if cfg!(feature = "tls") {
            assert_eq!(target.unwrap().node(), "h:6379");
        } else {
            assert!(target.unwrap_err().to_string().contains("feature `tls`"));
        }
    }
}
