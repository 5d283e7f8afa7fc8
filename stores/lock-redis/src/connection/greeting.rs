//! The first exchange over a new connection: what the server says about itself, and what it is willing to do.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, PushInfo, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use crate::connection::connect::Target;
use crate::connection::link::{ClientId, Link, ServerTime, unreadable};
use crate::error;
use crate::protocol::keys::CLOCK;
use crate::protocol::steps;
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::Clock;

/// How many commands may queue before callers wait. The client's own default of 50 caps what is
/// sent in one write, and makes 1,000 tasks wait for the queue instead of for the server.
const QUEUED_COMMANDS: usize = 4096;

/// How many bytes are gathered before they are written.
const WRITE_BUFFER: usize = 64 * 1024;

impl Target {
    /// Awaits an answer for as long as opening a connection may take.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        #[expect(clippy::disallowed_methods, reason = "bounds a task of a runtime that no caller drives")]
        let answer = tokio::time::timeout(self.settings.connect_within, answer).await;
        answer.ok()
    }

    /// Opens a connection whose driver runs on the current runtime and owns `presence`, which is dropped when
    /// the driver ends.
    pub(crate) async fn open(&self, presence: impl Send + Sync + 'static) -> Result<Opened<Greeting>> {
        match self.in_time(self.greet(presence)).await {
            Some(Ok(greeting)) => greeting,
            Some(Err(error)) => Err(error::connecting(self.node(), &error)),
            None => Err(LockError::not_executed(format!(
                "{} did not answer within {:?} of connecting; check the network, that it is Redis and not stalled, and that both ends use TLS or \
                 neither does",
                self.node(),
                self.settings.connect_within,
            ))),
        }
    }

    /// Opens a connection that listens to some channels, and to changes of the keys it reads.
    pub(crate) async fn listen(&self, channels: &[&str]) -> Result<Opened<Listening>> {
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUED_COMMANDS)
            .set_push_sender(sender);
        let failed = |error: RedisError| error::executing(self.node(), "subscribe to grants", &error);
        let subscribing = async {
            let opened = self.connect(&config).await;
            let mut connection = opened.map_err(|error| error::connecting(self.node(), &error))?;
            connection.subscribe(channels).await.map_err(failed)?;
            let asking = tracking();
            let tracks = tracks(&connection.send_packed_commands(&asking, 0, asking.len()).await.map_err(failed)?);
            let mut asking = redis::pipe();
            introduce(&mut asking);
            let answers = connection.send_packed_commands(&asking, 0, asking.len()).await.map_err(failed)?;
            let mut answers = answers.into_iter();
            let client = closable(&mut answers);
            let introduction = Introduction::read(answers.next(), answers.next());
            introduction.check(self.node(), self.master_only)?;
            let (history, more) = (introduction.history, Listening { pushes, tracks });
            Ok(Opened { connection, client, history, moves: None, more })
        };
        self.in_time(subscribing).await.unwrap_or_else(|| {
            Err(LockError::not_executed(format!(
                "{} did not answer within {:?} of subscribing; check the network and whether it is stalled",
                self.node(),
                self.settings.connect_within,
            )))
        })
    }

    async fn greet(
        &self,
        presence: impl Send + Sync + 'static,
    ) -> std::result::Result<Result<Opened<Greeting>>, RedisError> {
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
        steps::try_out(&mut greeting);
        let answers = connection.send_packed_commands(&greeting, 0, greeting.len()).await?;
        let received = Clock::system().now();
        let mut answers = answers.into_iter();
        let time = match answers.next() {
            Some(Value::ServerError(refusal)) => Err(error::executing(self.node(), "read its time", &refusal.into())),
            Some(answer) => redis::from_redis_value(answer)
                .map(|(seconds, micros): (u64, u64)| ServerTime::new(seconds * 1_000_000 + micros, received))
                .map_err(|_| error::unreadable(self.node(), "TIME")),
            None => Err(error::unreadable(self.node(), "TIME")),
        };
        let _named = answers.next();
        let client = closable(&mut answers);
        let introduction = Introduction::read(answers.next(), answers.next());
        if let Err(error) = introduction.check(self.node(), self.master_only) {
            return Ok(Err(error));
        }
        let Introduction { mode, history, .. } = introduction;
        let cluster = mode.as_deref() == Some("cluster");
        let refuses_release = steps::refusal(answers).is_some();
        let more = |time| Greeting { time, cluster, refuses_release };
        Ok(time.map(|time| Opened { connection, client, history, moves: None, more: more(time) }))
    }
}

/// An opened connection, and what the server said.
pub(crate) struct Opened<T> {
    pub(crate) connection: MultiplexedConnection,
    /// How the server identifies the connection, if it is willing to close it.
    pub(crate) client: Option<ClientId>,
    /// The name of the history of the server's data, if it tells.
    pub(crate) history: Option<Arc<str>>,
    /// Changes when the server turns out to be at another address, if that can happen.
    pub(crate) moves: Option<watch::Receiver<u64>>,
    pub(crate) more: T,
}

/// The rest of what a server says to a connection for commands.
pub(crate) struct Greeting {
    pub(crate) time: ServerTime,
    /// Whether the server is a node of a cluster.
    pub(crate) cluster: bool,
    /// Whether the server refuses what gives a lock back.
    pub(crate) refuses_release: bool,
}

/// The rest of a connection that listens.
pub(crate) struct Listening {
    /// The messages that it receives, and its end.
    pub(crate) pushes: UnboundedReceiver<PushInfo>,
    /// Whether the server reports changes to the keys that were read over it.
    pub(crate) tracks: bool,
}

/// The description of a server by itself.
pub(crate) struct Introduction {
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) mode: Option<String>,
    pub(crate) role: Option<String>,
    /// The name of the history of its data (`master_replid`), if it tells. No server but its replicas shares it. It
    /// changes when the server is promoted, and when it starts.
    pub(crate) history: Option<Arc<str>>,
    /// Whether it has gone on with the data of another server (`master_replid2`): it was promoted. A master that begins a
    /// new history because it gets its first replica has not.
    pub(crate) is_heir: bool,
}

impl Introduction {
    /// Reads the answers to `HELLO` and `INFO replication`.
    pub(crate) fn read(hello: Option<Value>, info: Option<Value>) -> Self {
        let words = if let Some(Value::Map(words)) = hello { words } else { Vec::new() };
        let word = |name: &str| {
            words.iter().find_map(|word| match word {
                (Value::BulkString(key), Value::BulkString(word)) if key == name.as_bytes() => {
                    String::from_utf8(word.clone()).ok()
                }
                _ => None,
            })
        };
        let info: Option<String> = info.and_then(|info| redis::from_redis_value(info).ok());
        let told = |name: &str| line(info.as_deref()?, name);
        let history = told("master_replid:").map(Arc::from);
        let is_heir = told("master_replid2:").is_some_and(|before| before.bytes().any(|digit| digit != b'0'));
        Self { mode: word("mode"), role: word("role"), history, is_heir }
    }

    /// Returns whether it is a replica, if it tells.
    pub(crate) fn is_replica(&self) -> Option<bool> {
        self.role.as_deref().map(|role| role == "replica")
    }

    /// Checks that locks can be kept there.
    pub(crate) fn check(&self, node: &str, master_only: bool) -> Result<()> {
        if self.mode.as_deref() == Some("sentinel") {
            return Err(LockError::misconfigured(format!(
                "{node} is a sentinel, which keeps no locks; write redis+sentinel://{node}/service, where service is the \
                 name that `sentinel monitor` gave the master",
            )));
        }
        if master_only && self.is_replica() == Some(true) {
            return Err(LockError::not_executed(format!(
                "{node} is a replica, although its sentinels name it as the master; wait for the failover to end",
            )));
        }
        Ok(())
    }
}

impl Link {
    /// Asks for a part of `INFO`.
    pub(crate) async fn info(&self, part: &str) -> std::result::Result<String, RedisError> {
        let answer = self.send(redis::cmd("INFO").arg(part)).await?;
        redis::from_redis_value(answer).map_err(|_| unreadable())
    }

    /// Asks for a setting. `None` if the server does not tell it.
    pub(crate) async fn setting(&self, name: &str) -> Option<String> {
        match self.send(redis::cmd("CONFIG").arg("GET").arg(name)).await {
            Ok(Value::Map(found)) => redis::from_redis_value(found.into_iter().next()?.1).ok(),
            _ => None,
        }
    }
}

/// Returns what stands behind a name in `INFO`.
pub(crate) fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
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
pub(crate) fn tracking() -> Pipeline {
    let mut asking = redis::pipe();
    // This variable exists since 7.0, the version that tracking renewals need for `PEXPIRE GT`.
    asking.cmd("EVAL").arg("return redis.REDIS_VERSION_NUM and 1 or 0").arg(0);
    // Off first, because this key need not be tracked.
    asking.cmd("CLIENT").arg("TRACKING").arg("OFF");
    asking.cmd("MGET").arg(CLOCK);
    asking.cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP");
    asking
}

/// Returns whether the server will. A redirect by a node that does not serve this key is not a refusal.
pub(crate) fn tracks(answers: &[Value]) -> bool {
    let [Value::Int(1), _, read, Value::Okay] = answers else { return false };
    !matches!(read, Value::ServerError(error) if error.code() == "NOPERM")
}
