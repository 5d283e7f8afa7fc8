//! The exchange with one sentinel.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::connection::connect::Target;
use crate::connection::link;
use crate::connection::url::Address;
use crate::error;
use lock_store::types::error::{LockError, LockErrorKind, Result};

/// How long one sentinel may take to answer, connecting included.
const PATIENCE: Duration = Duration::from_secs(1);

/// The answer of one sentinel.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) master: Address,
    /// The number of the decision that made it the master.
    pub(crate) epoch: u64,
    /// The other sentinels that it knows, or why it does not tell.
    pub(crate) sentinels: Result<Vec<Address>>,
    /// The replicas that it knows, and whether it takes each for down; or why it does not tell.
    pub(crate) replicas: Result<Vec<(Address, bool)>>,
}

/// The messages of a sentinel after which it is asked again: about the master, and about replicas that come and go.
const NEWS: [&str; 5] = ["+promoted-slave", "+switch-master", "+slave", "+sdown", "-sdown"];

/// Gives up on a sentinel that does not answer.
pub(crate) async fn within<T>(target: &Target, work: impl Future<Output = Result<T>>) -> Result<T> {
    link::within(PATIENCE, work).await.unwrap_or_else(|| {
        Err(LockError::not_executed(format!("the sentinel {} did not answer within {PATIENCE:?}", target.node())))
    })
}

/// Describes a failure. A sentinel has its own users, so the advice does not name the master's credentials.
fn failed(target: &Target, error: &RedisError) -> LockError {
    if error.to_string().contains("unknown command") {
        return LockError::misconfigured(format!(
            "{} is no sentinel; name sentinels in the URL, which listen on port 26379 by default, or write redis:// for \
             a server without sentinels, and redis+cluster:// for a cluster",
            target.node(),
        ));
    }
    let error = error::connecting(target.node(), error);
    if error.kind() == LockErrorKind::Misconfigured {
        return LockError::misconfigured(format!(
            "{error}; this is a sentinel, whose user and password are the sentinel_user and sentinel_password of the URL",
        ));
    }
    error
}

pub(crate) async fn ask(target: &Target, service: &str) -> Result<View> {
    let opened = target.connect(&AsyncConnectionConfig::new().set_response_timeout(None)).await;
    let mut connection = opened.map_err(|error| failed(target, &error))?;
    view(target, &mut connection, service).await
}

pub(crate) async fn subscribe(target: &Target) -> Result<(MultiplexedConnection, UnboundedReceiver<PushInfo>)> {
    let (sender, pushes) = unbounded_channel();
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(sender);
    let subscribing = async {
        let mut connection = target.connect(&config).await?;
        connection.subscribe(NEWS.as_slice()).await?;
        Ok(connection)
    };
    let connection = subscribing.await.map_err(|error: RedisError| failed(target, &error))?;
    Ok((connection, pushes))
}

/// Asks a sentinel what it knows of a service.
pub(crate) async fn view(target: &Target, connection: &mut MultiplexedConnection, service: &str) -> Result<View> {
    let mut asking = redis::pipe();
    // During a failover this is the promoted replica, before anything else changes.
    asking.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    asking.cmd("SENTINEL").arg("MASTER").arg(service);
    asking.cmd("SENTINEL").arg("SENTINELS").arg(service);
    asking.cmd("SENTINEL").arg("REPLICAS").arg(service);
    asking.cmd("SENTINEL").arg("MASTERS");
    let answers = connection.send_packed_commands(&asking, 0, 5).await.map_err(|error| failed(target, &error))?;
    let [address, master, sentinels, replicas, masters] = answers.as_slice() else { return Err(unreadable(target)) };
    for answer in [address, masters] {
        if let Value::ServerError(error) = answer {
            return Err(failed(target, &error.clone().into()));
        }
    }
    if *address == Value::Nil {
        let known: Vec<String> = list(masters).iter().filter_map(|master| field(master, "name")).collect();
        return Err(LockError::misconfigured(format!(
            "the sentinel {} has no service {service:?}, but: {}; correct the name after the hosts of the URL",
            target.node(),
            if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        )));
    }
    let pair: Option<(String, u16)> = redis::from_redis_value(address.clone()).ok();
    let epoch = field(master, "config-epoch").and_then(|epoch| epoch.parse().ok());
    let (Some((host, port)), Some(epoch)) = (pair, epoch) else { return Err(unreadable(target)) };
    let others = each(target, "SENTINELS", sentinels, place);
    let followers = each(target, "REPLICAS", replicas, |replica| {
        // A replica could take over unless it is reported as down.
        Some((place(replica)?, field(replica, "flags").is_some_and(|flags| flags.contains("down"))))
    });
    Ok(View { master: Address { host, port }, epoch, sentinels: others, replicas: followers })
}

/// Reads where a server is of which a sentinel tells.
fn place(known: &Value) -> Option<Address> {
    Some(Address { host: field(known, "ip")?, port: field(known, "port")?.parse().ok().filter(|port| *port > 0)? })
}

/// Reads a list, all of it or nothing: who counts the rest of it counts too few.
fn each<T>(target: &Target, command: &str, answer: &Value, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
    match answer {
        Value::Array(items) => items.iter().map(read).collect::<Option<_>>().ok_or_else(|| unreadable(target)),
        Value::ServerError(error) => {
            let error = failed(target, &error.clone().into());
            if error.kind() != LockErrorKind::Misconfigured {
                return Err(error);
            }
            Err(LockError::misconfigured(format!(
                "{error}; acks=all counts what SENTINEL {command} names: permit it, or write the number of replicas, as in \
                 acks=1",
            )))
        }
        _ => Err(unreadable(target)),
    }
}

fn list(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

fn field(value: &Value, name: &str) -> Option<String> {
    let Value::Map(fields) = value else { return None };
    let found = fields.iter().find(|(key, _)| matches!(key, Value::BulkString(key) if key == name.as_bytes()));
    found.and_then(|(_, value)| redis::from_redis_value(value.clone()).ok())
}

fn unreadable(target: &Target) -> LockError {
    LockError::not_executed(format!("{} gives answers that cannot be read; check that it is a sentinel", target.node()))
}
