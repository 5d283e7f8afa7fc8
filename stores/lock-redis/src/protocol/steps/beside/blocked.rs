//! `blocked.lua`: what the holder of a lock waits for.

use std::sync::LazyLock;

use redis::Value;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::Step;
use crate::protocol::value;
use lock_store::contract::backend::{Blocked, BlockedNotes};
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("blocked.lua")]]));

const OP: &str = "look for a deadlock";

impl BlockedNotes for RedisStore {
    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        self.run(write_blocked(key, blocked)).await
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        self.run(read_blocked(key)).await
    }
}

/// Asks what the holder of a lock waits for.
pub(crate) fn read_blocked(lock: &LockKey) -> Step<'_, Option<Blocked>> {
    let call = |keys: &Keys, _: &str| Eval::new(&SCRIPT, [&*keys.blocked()]);
    Step::new(OP, lock, call, |answer| Ok(read(answer)))
}

/// Writes what it waits for, or that it waits for nothing.
pub(crate) fn write_blocked<'a>(lock: &'a LockKey, blocked: Option<&'a Blocked>) -> Step<'a, ()> {
    let call = move |keys: &Keys, _: &str| {
        let text = blocked.map_or_else(String::new, |Blocked { owner, token, stamp, waits_for, .. }| {
            format!("{}|{token}|{stamp}|{waits_for}", owner.to_hex())
        });
        Eval::new(&SCRIPT, [&*keys.blocked()]).arg(text).arg(value::millis(Blocked::KEPT))
    };
    Step::new(OP, lock, call, |_| Ok(()))
}

/// Reads a note. A text that cannot be read was written by another version, and is ignored.
fn read(answer: &Value) -> Option<Blocked> {
    let Value::BulkString(text) = answer else { return None };
    let mut parts = std::str::from_utf8(text).ok()?.splitn(4, '|');
    let owner = OwnerId::from_hex(parts.next()?)?;
    let token = FencingToken::new(parts.next()?.parse().ok()?);
    let stamp = parts.next()?.parse().ok()?;
    Some(Blocked::new(owner, token, stamp, LockKey::new(parts.next()?).ok()?))
}
