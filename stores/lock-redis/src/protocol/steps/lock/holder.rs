//! `holder.lua`: reads who holds a lock.

use std::sync::LazyLock;

use redis::Value;

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Step, Unread};
use crate::protocol::{steps, value};
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("holder.lua")]]));

/// Asks who holds a lock.
pub(crate) fn read_holder(lock: &LockKey) -> Step<'_, Option<Holder>> {
    let call = |keys: &Keys, _: &str| Eval::new(&SCRIPT, [keys.lock()]);
    Step::new("look at the holder", lock, call, |answer| {
        let Value::Array(parts) = answer else { return Err(Unread::Nonsense) };
        match parts.as_slice() {
            [] => Ok(None),
            [Value::BulkString(text), Value::Int(left)] => Ok(Some(value::holder(text, steps::time_left(*left)))),
            _ => Err(Unread::Nonsense),
        }
    })
}
