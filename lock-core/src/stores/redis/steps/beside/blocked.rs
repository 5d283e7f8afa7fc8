//! `blocked.lua`: what the holder of a lock waits for.

use std::sync::LazyLock;

use redis::Value;

use crate::contract::backend::Blocked;
use crate::stores::redis::keys::Keys;
use crate::stores::redis::steps::script::{Eval, Script};
use crate::stores::redis::value;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::owner::OwnerId;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("blocked.lua")]]));

/// Asks what the holder of a lock waits for.
pub(crate) fn blocked(keys: &Keys) -> Eval {
    Eval::new(&SCRIPT, [&*keys.blocked()].into_iter())
}

/// Writes what it waits for, or that it waits for nothing.
pub(crate) fn set_blocked(keys: &Keys, blocked: Option<&Blocked>) -> Eval {
    let text = blocked.map_or_else(String::new, |Blocked { owner, token, stamp, waits_for }| {
        format!("{}|{token}|{stamp}|{waits_for}", owner.to_hex())
    });
    Eval::new(&SCRIPT, [&*keys.blocked()].into_iter()).with(|arguments| {
        arguments.arg(text).arg(value::millis(Blocked::KEPT));
    })
}

/// Reads the answer. What makes no sense was written by another version, and says nothing.
pub(crate) fn read_blocked(answer: &Value) -> Option<Blocked> {
    let Value::BulkString(text) = answer else { return None };
    let mut parts = std::str::from_utf8(text).ok()?.splitn(4, '|');
    let owner = OwnerId::from_hex(parts.next()?)?;
    let token = FencingToken::new(parts.next()?.parse().ok()?);
    let stamp = parts.next()?.parse().ok()?;
    Some(Blocked::new(owner, token, stamp, LockKey::new(parts.next()?).ok()?))
}
