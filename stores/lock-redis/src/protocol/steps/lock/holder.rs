//! `holder.lua`: reads who holds a lock.

use std::sync::LazyLock;

use redis::Value;

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step, Unread};
use crate::protocol::{steps, value};
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("holder.lua")]]));

/// Asks who holds a lock.
pub(crate) struct ReadHolder<'a>(pub(crate) &'a LockKey);

impl Step for ReadHolder<'_> {
    type Answer = Option<Holder>;
    const OP: &'static str = "look at the holder";

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [keys.lock()].into_iter())
    }

    fn read(&self, answer: &Value) -> Read<Self::Answer> {
        let Value::Array(parts) = answer else { return Err(Unread::Nonsense) };
        match parts.as_slice() {
            [] => Ok(None),
            [Value::BulkString(text), Value::Int(left)] => Ok(Some(value::holder(text, steps::time_left(*left)))),
            _ => Err(Unread::Nonsense),
        }
    }
}
