//! `holder.lua`: reads who holds a lock.

use std::sync::LazyLock;

use redis::Value;

use crate::stores::redis::keys::Keys;
use crate::stores::redis::steps::script::{Eval, Script};
use crate::stores::redis::{steps, value};
use crate::types::owner::Holder;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("holder.lua")]]));

/// Asks who holds a lock.
pub(crate) fn holder(keys: &Keys) -> Eval {
    Eval::new(&SCRIPT, [keys.lock()].into_iter())
}

/// Reads the answer. `None` if it makes no sense.
#[expect(clippy::option_option, reason = "no sense and nobody are different answers")]
pub(crate) fn read_holder(answer: &Value) -> Option<Option<Holder>> {
    let Value::Array(parts) = answer else { return None };
    match parts.as_slice() {
        [] => Some(None),
        [Value::BulkString(text), Value::Int(left)] => Some(Some(value::holder(text, steps::time_left(*left)))),
        _ => None,
    }
}
