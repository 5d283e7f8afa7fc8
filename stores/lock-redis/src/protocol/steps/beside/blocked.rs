//! `blocked.lua`: what the holder of a lock waits for.

use std::sync::LazyLock;

use redis::Value;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step};
use crate::protocol::value;
use lock_store::contract::backend::{Blocked, BlockedNotes};
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("blocked.lua")]]));

impl BlockedNotes for RedisStore {
    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        self.run(WriteBlocked(key, blocked)).await
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        self.run(ReadBlocked(key)).await
    }
}

/// Asks what the holder of a lock waits for.
pub(crate) struct ReadBlocked<'a>(pub(crate) &'a LockKey);

impl Step for ReadBlocked<'_> {
    type Answer = Option<Blocked>;
    const OP: &'static str = "look for a deadlock";

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [&*keys.blocked()].into_iter())
    }

    fn read(&self, answer: &Value) -> Read<Self::Answer> {
        Ok(read(answer))
    }
}

/// Writes what it waits for, or that it waits for nothing.
pub(crate) struct WriteBlocked<'a>(pub(crate) &'a LockKey, pub(crate) Option<&'a Blocked>);

impl Step for WriteBlocked<'_> {
    type Answer = ();
    const OP: &'static str = ReadBlocked::OP;

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        let text = self.1.map_or_else(String::new, |Blocked { owner, token, stamp, waits_for, .. }| {
            format!("{}|{token}|{stamp}|{waits_for}", owner.to_hex())
        });
        Eval::new(&SCRIPT, [&*keys.blocked()].into_iter()).with(|arguments| {
            arguments.arg(text).arg(value::millis(Blocked::KEPT));
        })
    }

    fn read(&self, _: &Value) -> Read<()> {
        Ok(())
    }
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
