//! `done.lua`: the mark that the work under a lock is done for a version.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step, Unread};
use crate::protocol::value;
use lock_store::contract::backend::{Claim, DoneMark, JobVersion};
use lock_store::types::error::LockError;
use lock_store::types::key::LockKey;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("done.lua")]]));

/// A mark, as errors say it.
const READ: &str = "look what is done";
const WRITE: &str = "mark what is done";
const REMOVE: &str = "forget what is done";

/// Asks for the mark of a version.
pub(crate) struct ReadDone<'a>(pub(crate) &'a LockKey, pub(crate) &'a JobVersion);

impl Step for ReadDone<'_> {
    type Answer = Option<DoneMark>;
    const OP: &'static str = READ;

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn version(&self) -> Option<&JobVersion> {
        Some(self.1)
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [&*keys.done(self.1)].into_iter())
    }

    fn read(&self, answer: &Value) -> Read<Self::Answer> {
        let Value::Array(parts) = answer else { return Err(unread(answer, self.0, self.1)) };
        match parts.as_slice() {
            [] => Ok(None),
            [Value::BulkString(text), Value::Int(now)] => {
                let now = u64::try_from(*now).map_err(|_| Unread::Nonsense)?;
                read_mark(text, self.1, now).map(Some).ok_or_else(|| foreign(self.0, self.1))
            }
            _ => Err(Unread::Nonsense),
        }
    }
}

/// Writes the mark of a version if the claim has the lock. Answers whether it had.
pub(crate) struct WriteDone<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) version: &'a JobVersion,
    pub(crate) keep: Duration,
}

impl Step for WriteDone<'_> {
    type Answer = bool;
    const OP: &'static str = WRITE;

    fn lock(&self) -> &LockKey {
        &self.claim.key
    }

    fn version(&self) -> Option<&JobVersion> {
        Some(self.version)
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [&*keys.done(self.version), keys.lock()].into_iter()).with(|arguments| {
            arguments.arg(&value::head(self.claim.owner)).arg(value::millis(self.keep));
        })
    }

    fn read(&self, answer: &Value) -> Read<bool> {
        whether(answer, &self.claim.key, self.version)
    }
}

/// Removes the mark of a version. Answers whether there was one.
pub(crate) struct RemoveDone<'a>(pub(crate) &'a LockKey, pub(crate) &'a JobVersion);

impl Step for RemoveDone<'_> {
    type Answer = bool;
    const OP: &'static str = REMOVE;

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn version(&self) -> Option<&JobVersion> {
        Some(self.1)
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [&*keys.done(self.1)].into_iter()).with(|arguments| {
            arguments.arg("forget");
        })
    }

    fn read(&self, answer: &Value) -> Read<bool> {
        whether(answer, self.0, self.1)
    }
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
