//! Reads the server's queue of a key.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::inspect::servers::{Answer, Servers};
use crate::protocol::keys::Keys;
use crate::protocol::value;
use lock_store::contract::backend::Waiter;
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

/// The most waiters that are listed for one key.
const MAX_LISTED: isize = 1000;

/// The estimate of the server's time is better than this.
const ESTIMATE: Duration = Duration::from_secs(1);

const LIST: &str = "list the waiters";

/// The command that counts the waiters of a key. A missing queue is empty.
pub(super) fn count(key: &LockKey) -> Result<Cmd> {
    // Claims that share the lock stand there too, with a negative score.
    Ok(redis::cmd("ZCOUNT").arg(Keys::of(key)?.queue()).arg(0).arg("+inf").to_owned())
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
    let (entries, now) = entries(servers, LIST, &keys, queue.iter().map(|(owner, _)| owner)).await?;
    let read = |(at, ((owner, arrived), text)): (usize, ((String, f64), Vec<u8>))| {
        let entry = value::waiter(&text);
        #[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are exact until the year 2255")]
        let micros = (now as f64 - arrived).max(0.0);
        let waiting_for = Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default();
        let mut waiter = Waiter::new(at + 1, OwnerId::from_hex(&owner)?, waiting_for);
        (waiter.asleep, waiter.confirmed) = entry.as_ref().map_or((false, None), |(_, at)| confirmed(*at, now));
        (waiter.mode, waiter.info) = (value::mode(&text), entry.map(|(info, _)| info));
        Some(waiter)
    };
    Ok(queue.into_iter().zip(entries).enumerate().filter_map(read).collect())
}

/// Returns whether a waiter sleeps, and how long ago it confirmed its place if it does not.
///
/// A sleeper confirms it for seconds ahead. The present is an estimate, which a confirmation of this moment may be ahead of.
fn confirmed(at: u64, now: u64) -> (bool, Option<Duration>) {
    let asleep = Duration::from_micros(at.saturating_sub(now)) > ESTIMATE;
    (asleep, (!asleep).then(|| Duration::from_micros(now.saturating_sub(at))))
}

/// Reads the entries of some claims, and when, in µs of the server's time. An entry is empty if its claim has left meanwhile.
pub(super) async fn entries(
    servers: &Servers,
    what: &'static str,
    keys: &Keys,
    owners: impl Iterator<Item = &String>,
) -> Result<(Vec<Vec<u8>>, u64)> {
    let mut command = redis::cmd("HMGET").arg(keys.waiters()).to_owned();
    owners.for_each(|owner| _ = command.arg(owner));
    let answer = ask(servers, what, command).await?;
    let Value::Array(entries) = answer.value else { return Err(answer.refusal(what)) };
    let text = |entry| if let Value::BulkString(text) = entry { text } else { Vec::new() };
    Ok((entries.into_iter().map(text).collect(), answer.now))
}

pub(super) async fn ask(servers: &Servers, what: &'static str, command: Cmd) -> Result<Answer> {
    let store = servers.reachable().await?;
    let answers = servers.ask(&store, what, &[command]).await?;
    answers.into_iter().next().ok_or_else(|| store.unreadable(what))
}

#[cfg(test)]
#[path = "tests/waiters.rs"]
mod tests;
