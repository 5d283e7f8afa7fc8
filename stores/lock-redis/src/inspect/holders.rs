//! Everybody who shares a lock.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::inspect::servers::Servers;
use crate::inspect::waiters::{ask, entries};
use crate::protocol::keys::Keys;
use crate::protocol::value;
use crate::server::node::Node;
use lock_store::contract::backend::{FleetHolder, LockEntry};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

/// The most holders that are listed for one key.
const MAX_LISTED: isize = 1000;

const LIST: &str = "list the holders";

/// Finds out how locks of a server are shared, by the holder of each that lasts longest.
pub(super) async fn note_modes(servers: &Servers, from: &Arc<Node>, shared: &mut [&mut LockEntry]) -> Result<()> {
    let keys = shared.iter().map(|entry| Keys::of(&entry.key)).collect::<Result<Vec<_>>>()?;
    let ask = async |commands: Vec<Cmd>| {
        if commands.is_empty() { Ok(Vec::new()) } else { servers.ask(from, LIST, &commands).await }
    };
    let last = |keys: &Keys| redis::cmd("ZRANGE").arg(keys.queue()).arg(0).arg(0).to_owned();
    let lasting = ask(keys.iter().map(last).collect()).await?;
    let mut found = Vec::new();
    for (place, answer) in lasting.into_iter().enumerate() {
        shared[place].mode = None;
        if let Ok([owner]) = redis::from_redis_value::<[String; 1]>(answer.value) {
            found.push((place, owner));
        }
    }
    let of = |(place, owner): &(usize, String)| redis::cmd("HMGET").arg(keys[*place].waiters()).arg(owner).to_owned();
    let known = ask(found.iter().map(of).collect()).await?;
    for ((place, _), answer) in found.into_iter().zip(known) {
        if let Value::Array(known) = answer.value
            && let [Value::BulkString(text)] = known.as_slice()
        {
            shared[place].mode = value::mode(text).filter(|mode| mode.is_shared());
        }
    }
    Ok(())
}

/// Lists those who share a lock.
pub(super) async fn read(servers: &Servers, key: &LockKey) -> Result<Vec<FleetHolder>> {
    let keys = Keys::of(key)?;
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.queue()).arg("(0").arg("-inf").arg("BYSCORE").arg("REV").arg("LIMIT").arg(0).arg(MAX_LISTED);
    command.arg("WITHSCORES");
    let answer = ask(servers, LIST, command).await?;
    let now_ms = answer.now / 1000;
    let holders: Vec<(String, f64)> =
        redis::from_redis_value(answer.value.clone()).map_err(|_| answer.refusal(LIST))?;
    // A lease that is over was not taken out yet.
    let live = holders.into_iter().filter_map(|(owner, score)| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds since 1970")]
        let left = (-score as u64).saturating_sub(now_ms);
        (left > 0).then_some((owner, Duration::from_millis(left)))
    });
    let live: Vec<(String, Duration)> = live.collect();
    if live.is_empty() {
        return Ok(Vec::new());
    }
    let (known, now) = entries(servers, LIST, &keys, live.iter().map(|(owner, _)| owner)).await?;
    let read = |((owner, left), text): ((String, Duration), Vec<u8>)| {
        // Released, but kept for the rest of its `min_hold`.
        let owner = OwnerId::from_hex(&owner).filter(|_| !owner.starts_with(&"0".repeat(16)));
        let mut holder = FleetHolder::new(owner, Some(left));
        let (info, let_in) = value::waiter(&text).unzip();
        (holder.info, holder.mode) = (info, value::mode(&text));
        // A claim that came from the queue may have slept until a time that lies ahead of its grant.
        holder.held_for = let_in.and_then(|at| now.checked_sub(at)).map(Duration::from_micros);
        holder
    };
    Ok(live.into_iter().zip(known).map(read).collect())
}
