//! `release.lua`: frees locks and passes them on.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::backend::{Claim, Freed};
use crate::mode::Mode;
use crate::owner::OwnerId;
use crate::redis::keys::Keys;
use crate::redis::script::{Eval, Script};
use crate::redis::value;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        "local guarded = pcall\n",
        // The functions are defined only if they are needed.
        "local function library()\n",
        include_str!("clock.lua"),
        include_str!("queue.lua"),
        include_str!("phase.lua"),
        include_str!("free.lua"),
        "end\n",
        include_str!("release.lua"),
    ))
});

/// What is freed of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) owner: OwnerId,
    /// How much of a lock that is shared; 0 for the whole lock.
    pub(crate) units: u32,
}

impl Part {
    pub(crate) fn of(claim: &Claim) -> Self {
        let units = if let Mode::Shared { units, .. } = claim.mode { units } else { 0 };
        Self { owner: claim.owner, units }
    }
}

/// Frees what some claims have, which stays taken for a while.
pub(crate) fn release<'a>(
    claims: impl Iterator<Item = (&'a Keys, Part)> + Clone,
    clock: &'a str,
    keep_for: Duration,
) -> Eval {
    let locks = claims.clone().map(|(keys, _)| keys.lock());
    let queues = claims.clone().map(|(keys, _)| keys.queue());
    let keys: Vec<&str> = locks.chain(queues).chain([clock]).collect();
    Eval::new(&SCRIPT, keys.into_iter()).with(|arguments| {
        arguments.arg(if keep_for.is_zero() { 0 } else { value::millis(keep_for) });
        for (_, part) in claims.clone() {
            arguments.arg(&value::head(part.owner));
        }
        if claims.clone().any(|(_, part)| part.units > 0) {
            for (_, part) in claims {
                arguments.arg(part.units);
            }
        }
    })
}

/// The same for one claim, without its queue.
pub(crate) fn free_one(keys: &Keys, owner: OwnerId, keep_for: Duration) -> Eval {
    static ALONE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("free_one.lua")));
    Eval::new(&ALONE, [keys.lock()].into_iter()).with(|arguments| {
        arguments.arg(if keep_for.is_zero() { 0 } else { value::millis(keep_for) }).arg(&value::head(owner));
    })
}

/// Returns the text of the script, which a new connection sends so that the server knows it.
pub(crate) fn script() -> &'static str {
    &SCRIPT.text
}

/// Reads the answer to one claim: whether it held the lock, or the text of an error. `None` if it makes
/// no sense.
pub(crate) fn freed(answer: &Value) -> Option<Result<Freed, String>> {
    match answer {
        Value::Int(1) => Some(Ok(Freed::Released)),
        Value::Int(0) => Some(Ok(Freed::NotHeld)),
        Value::BulkString(text) => Some(Err(String::from_utf8_lossy(text.strip_prefix(b"e")?).into_owned())),
        _ => None,
    }
}
