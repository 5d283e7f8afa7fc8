//! `done.lua`: the mark that the work under a lock is done for a version.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step, Unread};
use crate::protocol::value;
use lock_store::contract::backend::{Claim, DoneMark, DoneMarks, JobVersion};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("done.lua")]]));

impl DoneMarks for RedisStore {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        self.run(read_done(key, version)).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        self.run(write_done(claim, version, keep.unwrap_or(DoneMark::KEPT))).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.run(remove_done(key, version)).await
    }
}

/// Asks for the mark of a version.
pub(crate) fn read_done<'a>(lock: &'a LockKey, version: &'a JobVersion) -> Step<'a, Option<DoneMark>> {
    let call = |keys: &Keys, _: &str| Eval::new(&SCRIPT, [&*keys.done(version)]);
    let read = |answer: &Value| {
        let Value::Array(parts) = answer else { return Err(unread(answer, lock, version)) };
        match parts.as_slice() {
            [] => Ok(None),
            [Value::BulkString(text), Value::Int(now)] => {
                let now = u64::try_from(*now).map_err(|_| Unread::Nonsense)?;
                read_mark(text, version, now).map(Some).ok_or_else(|| foreign(lock, version))
            }
            _ => Err(Unread::Nonsense),
        }
    };
    Step { version: Some(version), is_missing: Option::is_none, ..Step::new("look what is done", lock, call, read) }
}

/// Writes the mark of a version if the claim has the lock. Answers whether it had.
pub(crate) fn write_done<'a>(claim: &'a Claim, version: &'a JobVersion, keep: Duration) -> Step<'a, bool> {
    let call = move |keys: &Keys, _: &str| {
        Eval::new(&SCRIPT, [&*keys.done(version), keys.lock()]).arg(&value::head(claim.owner)).arg(value::millis(keep))
    };
    let read = |answer: &Value| whether(answer, &claim.key, version);
    Step { version: Some(version), is_missing: |had| !had, ..Step::of("mark what is done", claim, call, read) }
}

/// Removes the mark of a version. Answers whether there was one.
pub(crate) fn remove_done<'a>(lock: &'a LockKey, version: &'a JobVersion) -> Step<'a, bool> {
    let call = |keys: &Keys, _: &str| Eval::new(&SCRIPT, [&*keys.done(version)]).arg("forget");
    let read = |answer: &Value| whether(answer, lock, version);
    Step { version: Some(version), ..Step::new("forget what is done", lock, call, read) }
}

fn whether(answer: &Value, lock: &LockKey, version: &JobVersion) -> Read<bool> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(unread(answer, lock, version)),
    }
}

fn unread(answer: &Value, lock: &LockKey, version: &JobVersion) -> Unread {
    if matches!(answer, Value::BulkString(_)) { foreign(lock, version) } else { Unread::Nonsense }
}

/// The error of a text in place of a mark.
fn foreign(lock: &LockKey, version: &JobVersion) -> Unread {
    Unread::Refused(LockError::misconfigured(format!(
        "the Redis key {:?} holds a string that is no mark, where the lock {:?} has that its work is done for {:?}, so it is \
         unknown whether it is; delete that key, and find out who writes to it",
        Keys::of_taken(lock).done(version),
        lock.as_str(),
        version.as_str(),
    )))
}

/// Reads a mark, at a moment of the server's time in ms.
pub(crate) fn read_mark(text: &[u8], version: &JobVersion, now: u64) -> Option<DoneMark> {
    let mut parts = std::str::from_utf8(text).ok()?.split('|');
    let at: u64 = parts.next()?.parse().ok()?;
    let _since: u64 = parts.next()?.parse().ok()?;
    Some(DoneMark::new(version.clone(), value::info(parts)?, Duration::from_millis(now.saturating_sub(at))))
}

#[cfg(test)]
#[path = "tests/done.rs"]
mod tests;
