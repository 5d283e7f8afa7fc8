//! Reads the server's queue of a key.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::stores::redis::inspect::servers::{Answer, Servers};
use crate::stores::redis::keys::Keys;
use crate::stores::redis::value;
use crate::types::error::Result;
use crate::types::key::LockKey;
use crate::types::mode::Mode;
use crate::types::owner::{HolderInfo, OwnerId};

/// The most waiters that are listed for one key.
const MAX_LISTED: isize = 1000;

const LIST: &str = "list the waiters";

/// One process in the server's queue. More callers of that process may wait behind this one.
///
/// ```
/// use lock_core::inspect::FleetReader;
/// use lock_core::LockKey;
///
/// # async fn demo(fleet: FleetReader) -> Result<(), lock_core::LockError> {
/// for waiter in fleet.waiters(&LockKey::new("report")?).await? {
///     println!("{}. for {:?}", waiter.position, waiter.waiting_for);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Its place in the queue; the first is 1.
    pub position: usize,
    /// The identity of its claim.
    pub owner: OwnerId,
    /// The process and call site, as it describes itself.
    pub info: Option<HolderInfo>,
    /// How it wants to have the lock. `None` if that cannot be told.
    pub mode: Option<Mode>,
    /// How long it has been in the queue, by the server's clock.
    pub waiting_for: Duration,
    /// How long ago it last confirmed that it still waits. A waiter that has missed three
    /// confirmations is passed over.
    pub confirmed: Option<Duration>,
}

/// The command that counts the waiters of a key. A missing queue is empty.
pub(super) fn count(key: &LockKey) -> Result<Cmd> {
    let mut command = redis::cmd("ZCOUNT");
    // Who shares the lock stands there too, with a negative score.
    command.arg(Keys::of(key)?.queue()).arg(0).arg("+inf");
    Ok(command)
}

/// Lists the waiters of a key in order of arrival. A missing queue is empty.
pub(super) async fn read(servers: &Servers, key: &LockKey) -> Result<Vec<Waiter>> {
    let keys = Keys::of(key)?;
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.queue()).arg(0).arg("+inf").arg("BYSCORE").arg("LIMIT").arg(0).arg(MAX_LISTED).arg("WITHSCORES");
    let answer = ask(servers, LIST, command).await?;
    let queue: Vec<(String, f64)> = redis::from_redis_value(answer.value.clone()).map_err(|_| answer.refusal(LIST))?;
    if queue.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = redis::cmd("HMGET");
    command.arg(keys.waiters());
    for (owner, _) in &queue {
        command.arg(owner);
    }
    let answer = ask(servers, LIST, command).await?;
    let Value::Array(entries) = answer.value else { return Err(answer.refusal(LIST)) };
    let now = answer.now;
    let read = |(at, ((owner, arrived), entry)): (usize, ((String, f64), Value))| {
        // The waiter may have been granted the lock between the two commands.
        let text = if let Value::BulkString(text) = entry { text } else { Vec::new() };
        let entry = value::waiter(&text);
        #[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are exact until the year 2255")]
        let micros = (now as f64 - arrived).max(0.0);
        Some(Waiter {
            position: at + 1,
            owner: OwnerId::from_hex(&owner)?,
            waiting_for: Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default(),
            confirmed: entry.as_ref().map(|(_, at)| Duration::from_micros(now.saturating_sub(*at))),
            mode: value::mode(&text),
            info: entry.map(|(info, _)| info),
        })
    };
    Ok(queue.into_iter().zip(entries).enumerate().filter_map(read).collect())
}

pub(super) async fn ask(servers: &Servers, what: &'static str, command: Cmd) -> Result<Answer> {
    let store = servers.reachable().await?;
    let answers = servers.ask(&store, what, &[command]).await?;
    answers.into_iter().next().ok_or_else(|| store.unreadable(what))
}
