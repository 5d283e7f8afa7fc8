//! A connection to one server that only the examination uses.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use crate::connection::connect::Target;
use crate::connection::link::{Link, ServerTime, within};
use crate::doctor::judge::{Failure, all, answer};
use crate::error;
use crate::protocol::keys::hash_slot::number_in;
use crate::protocol::keys::inbox_channel;
use lock_store::types::error::{LockError, Result};
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::Clock;

/// How long one question may take.
const WITHIN: Duration = Duration::from_secs(2);

/// After how many questions without an answer no other is asked: each would take as long.
const MOST_SILENT: u8 = 2;

/// How long a message that was published may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(1);

/// For how long the keys of the examination exist if it cannot delete them, in ms.
pub(super) const KEPT: u64 = 5_000;

/// One server, and what belongs to its examination alone.
pub(super) struct Probe {
    pub(super) target: Target,
    open: Option<Open>,
    silent: u8,
    /// A key that no lock has, in a slot of the server.
    pub(super) key: String,
    /// A channel that no process has.
    pub(super) channel: String,
}

struct Open {
    link: Link,
    pushes: UnboundedReceiver<PushInfo>,
    /// The end of it would be the end of the connection for the link.
    _alive: watch::Sender<()>,
}

impl Probe {
    pub(super) fn new(target: Target, slot: u16) -> Self {
        let (own, tag) = (OwnerId::random().to_hex(), number_in(slot));
        let key = format!("lock:distributed-lock:doctor:{own}:{{{tag}}}");
        Self { target, open: None, silent: 0, key, channel: inbox_channel(&format!("doctor-{own}")) }
    }

    /// Opens the connection, if it is not open. A later question opens it again if it has ended.
    pub(super) async fn connect(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let config = config.set_push_sender(sender);
        let opened = within(self.target.settings.connect_within, self.target.connect(&config)).await;
        let late = || {
            LockError::unavailable(format!("{} did not answer in time when it was connected to", self.target.node()))
        };
        let connection = opened.ok_or_else(late)?.map_err(|error| error::connecting(self.target.node(), &error))?;
        let (now, (alive, gone)) = (Clock::system().now(), watch::channel(()));
        let link = Link::new(connection, 0, now, ServerTime::new(0, now), gone, None);
        self.open = Some(Open { link, pushes, _alive: alive });
        Ok(())
    }

    /// Asks something over the connection. A question that is not answered costs the connection, and no later question.
    pub(super) async fn with<T>(
        &mut self,
        ask: impl AsyncFnOnce(&Link) -> std::result::Result<T, redis::RedisError>,
    ) -> std::result::Result<T, Failure> {
        if self.silent >= MOST_SILENT {
            return Err(Failure::Silent("not asked: the server has left other questions unanswered".to_owned()));
        }
        if self.open.is_none() {
            self.connect().await.map_err(|error| {
                self.silent += 1;
                Failure::Silent(error.to_string())
            })?;
        }
        let Some(open) = &self.open else { return Err(Failure::unreadable()) };
        let why = match within(WITHIN, ask(&open.link)).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) if error.code().is_some() => return Err(Failure::Refused(error)),
            Some(Err(error)) => format!("the connection ended before the answer: {error}"),
            None => format!("no answer within {WITHIN:?}"),
        };
        self.silent += 1;
        self.open = None;
        Err(Failure::Silent(why))
    }

    /// Asks several questions at once. An error of one is its answer.
    pub(super) async fn ask_all(&mut self, asked: &Pipeline) -> std::result::Result<Vec<Value>, Failure> {
        self.with(async |link| link.send_all(asked).await).await
    }

    /// Asks several questions at once, of which none may fail.
    pub(super) async fn answers(&mut self, asked: &Pipeline) -> std::result::Result<Vec<Value>, Failure> {
        self.ask_all(asked).await.and_then(all)
    }

    /// Asks one question.
    pub(super) async fn ask(&mut self, asked: &Cmd) -> std::result::Result<Value, Failure> {
        self.with(async |link| link.send(asked).await).await.and_then(answer)
    }

    /// Asks for a part of INFO.
    pub(super) async fn info(&mut self, part: &str) -> std::result::Result<String, Failure> {
        let answer = self.ask(redis::cmd("INFO").arg(part)).await?;
        redis::from_redis_value(answer).map_err(|_| Failure::unreadable())
    }

    /// Asks for a setting. `None` if the server does not know it.
    pub(super) async fn setting(&mut self, name: &str) -> std::result::Result<Option<String>, Failure> {
        match self.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await? {
            Value::Map(found) => {
                Ok(found.into_iter().next().and_then(|(_, value)| redis::from_redis_value(value).ok()))
            }
            _ => Err(Failure::unreadable()),
        }
    }

    /// Returns whether a message arrives that was published.
    pub(super) async fn hears(&mut self, kind: &PushKind, text: &str) -> bool {
        let Some(open) = &mut self.open else { return false };
        let arrival = async {
            while let Some(push) = open.pushes.recv().await {
                let is_it = |value: &Value| matches!(value, Value::BulkString(bytes) if bytes == text.as_bytes());
                if push.kind == *kind && push.data.last().is_some_and(is_it) {
                    return true;
                }
            }
            false
        };
        within(ARRIVES_WITHIN, arrival).await == Some(true)
    }
}
