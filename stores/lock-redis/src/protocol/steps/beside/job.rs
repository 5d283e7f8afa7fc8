//! `job.lua`: the record of a job.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step};
use crate::protocol::value;
use lock_store::contract::backend::{Claim, JobRecord, JobRecords, JobRun};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("job.lua")]]));

impl JobRecords for RedisStore {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.run(ReadLastRun(key)).await
    }
}

/// Notes the run of a job that ends with a claim. Answers whether the claim had the lock.
pub(crate) struct NoteRun<'a>(pub(crate) &'a Claim, pub(crate) JobRun);

impl Step for NoteRun<'_> {
    type Answer = bool;
    const OP: &'static str = ReadLastRun::OP;

    fn lock(&self) -> &LockKey {
        &self.0.key
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        let Self(claim, run) = self;
        Eval::new(&SCRIPT, [&*keys.job(), keys.lock()].into_iter()).with(|arguments| {
            arguments.arg(&value::head(claim.owner)).arg(value::millis(run.every)).arg(u8::from(run.succeeded));
            arguments.arg(value::millis(run.kept_for()));
        })
    }

    fn read(&self, answer: &Value) -> Read<bool> {
        Ok(*answer == Value::Int(1))
    }
}

/// Asks for the last run of a job.
pub(crate) struct ReadLastRun<'a>(pub(crate) &'a LockKey);

impl Step for ReadLastRun<'_> {
    type Answer = Option<JobRecord>;
    const OP: &'static str = "look at the runs of a job";

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn call(&self, keys: &Keys, _: &str) -> Eval {
        Eval::new(&SCRIPT, [&*keys.job()].into_iter())
    }

    fn read(&self, answer: &Value) -> Read<Self::Answer> {
        Ok(read_last_run(answer))
    }
}

/// Reads the answer. An answer that cannot be read was written by another version, and is ignored.
fn read_last_run(answer: &Value) -> Option<JobRecord> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(record), Value::Int(now)] = parts.as_slice() else { return None };
    read_job(record, u64::try_from(*now).ok()?)
}

/// Reads a record, at a moment of the server's time in ms.
pub(crate) fn read_job(record: &[u8], now: u64) -> Option<JobRecord> {
    let mut parts = std::str::from_utf8(record).ok()?.split('|');
    let every = Duration::from_millis(parts.next()?.parse().ok()?);
    let from: u64 = parts.next()?.parse().ok()?;
    let run = JobRun::new(every, parts.next()? == "1");
    let since: u64 = parts.next()?.parse().ok()?;
    let ago = |then: u64| Duration::from_millis(now.saturating_sub(then));
    Some(JobRecord::new(run, value::info(parts)?, ago(since), ago(from)))
}

#[cfg(test)]
#[path = "tests/job.rs"]
mod tests;
