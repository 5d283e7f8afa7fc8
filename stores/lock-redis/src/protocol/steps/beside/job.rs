//! `job.lua`: the record of a job.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::Step;
use crate::protocol::value;
use lock_store::contract::backend::{Claim, JobRecord, JobRecords, JobRun};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("job.lua")]]));

const OP: &str = "look at the runs of a job";

impl JobRecords for RedisStore {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.run(read_job_of(key)).await
    }
}

/// Notes the run of a job that ends with a claim. Answers whether the claim had the lock.
pub(crate) fn note_run(claim: &Claim, run: JobRun) -> Step<'_, bool> {
    let call = move |keys: &Keys, _: &str| {
        Eval::new(&SCRIPT, [&*keys.job(), keys.lock()])
            .arg(&value::head(claim.owner))
            .arg(value::millis(run.every))
            .arg(u8::from(run.succeeded))
            .arg(value::millis(run.kept_for()))
    };
    Step::new(OP, &claim.key, call, |answer| Ok(*answer == Value::Int(1)))
}

/// Asks for the last run of a job.
pub(crate) fn read_job_of(lock: &LockKey) -> Step<'_, Option<JobRecord>> {
    let call = |keys: &Keys, _: &str| Eval::new(&SCRIPT, [&*keys.job()]);
    Step::new(OP, lock, call, |answer| Ok(read_last_run(answer)))
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
