//! `release.lua`: frees locks and passes them on.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Pipeline, Value};

use crate::protocol::keys::{self, QueueOf};
use crate::protocol::steps::lib::{CLOCK, ENTRY, FREE, PASS, QUEUE};
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value;
use crate::services;
use lock_store::contract::backend::{Claim, Freed};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    // The functions are defined only if they are needed.
    let begins = ["local guarded = pcall\n", "local function library()\n", CLOCK, ENTRY];
    Script::new(&[&begins, &QUEUE, &[FREE, "end\n", PASS, include_str!("release.lua")]])
});

/// Frees what some claims have, which stays taken for a while.
pub(crate) fn release<'a>(
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
    clock: &str,
    keep_for: Duration,
) -> Eval {
    let count = claims.len();
    Eval::of(&SCRIPT, 2 * count + 1).with(|words| {
        for claim in claims.clone() {
            words.arg(claim.key.as_str());
        }
        for claim in claims.clone() {
            words.arg(QueueOf(&claim.key));
        }
        let heads: Vec<[u8; 33]> = claims.map(|claim| value::head(claim.owner)).collect();
        words.arg(clock).arg(if keep_for.is_zero() { 0 } else { value::millis(keep_for) }).arg(heads.as_flattened());
    })
}

/// The same for one claim, without its queue.
pub(crate) fn free_one(claim: &Claim, keep_for: Duration) -> Eval {
    static ALONE: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("free_one.lua")]]));
    Eval::new(&ALONE, [claim.key.as_str()])
        .arg(if keep_for.is_zero() { 0 } else { value::millis(keep_for) })
        .arg(&value::head(claim.owner))
}

/// Deletes a key that holds exactly this value, which a client of another library wrote.
#[cfg(feature = "inspect")]
pub(crate) fn release_foreign(lock: &str, value: &[u8]) -> Eval {
    static FOREIGN: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("release_foreign.lua")]]));
    Eval::new(&FOREIGN, [lock]).arg(value)
}

/// Adds what a new connection asks first: whether the server knows this script, runs it, and lets the user do in a script what
/// gives a lock back. There are three answers.
pub(crate) fn try_out(greeting: &mut Pipeline) {
    try_out_at(greeting, keys::CLOCK, &[]);
}

/// The same with a key that the server serves, and keys that the last question declares, because some services refuse a script
/// without any.
pub(crate) fn try_out_at(greeting: &mut Pipeline, key: &str, declared: &[&str]) {
    static MAY: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("may_release.lua")]]));
    // Called without locks it does nothing.
    greeting.cmd("EVAL").arg(&SCRIPT.text).arg(1).arg(key).arg(0);
    greeting.add_command(Eval::new(&SCRIPT, [key]).arg(0).by_hash().clone());
    greeting.cmd("EVAL").arg(&MAY.text).arg(declared.len()).arg(declared).arg(format!("{key}:none"));
}

/// Reads those three answers: what the server or a script refused, if that is certain.
pub(crate) fn refusal(answers: impl IntoIterator<Item = Value>) -> Option<String> {
    // The last script has no key.
    answers.into_iter().zip([true, true, false]).find_map(|(answer, has_keys)| refused(answer, has_keys))
}

fn refused(answer: Value, has_keys: bool) -> Option<String> {
    match answer {
        Value::ServerError(error) => {
            let detail = error.details().unwrap_or_default();
            let certain = ["permissions to run", "unknown command"].iter().any(|part| detail.contains(part))
                || services::refuses_scripts(detail, has_keys);
            certain.then(|| format!("{} {}", error.code(), detail.split(", with args").next().unwrap_or_default()))
        }
        Value::BulkString(text) if !text.is_empty() => Some(String::from_utf8_lossy(&text).into_owned()),
        _ => None,
    }
}

/// Reads the answers to `count` claims. Returns fewer if the reply cannot be read.
pub(crate) fn each_freed(reply: Value, count: usize) -> impl Iterator<Item = Value> {
    let (each, all) = match reply {
        Value::Array(each) if each.len() == count => (each, 0),
        Value::Int(1) => (Vec::new(), count),
        _ => (Vec::new(), 0),
    };
    each.into_iter().chain(std::iter::repeat_n(Value::Int(1), all))
}

/// Reads the answer to one claim: whether it held the lock, or the text of an error. `None` if it cannot
/// be read.
pub(crate) fn freed(answer: &Value) -> Option<Result<Freed, String>> {
    match answer {
        Value::Int(1) => Some(Ok(Freed::Released)),
        Value::Int(0) => Some(Ok(Freed::NotHeld)),
        Value::BulkString(text) => Some(Err(String::from_utf8_lossy(text.strip_prefix(b"e")?).into_owned())),
        _ => None,
    }
}
