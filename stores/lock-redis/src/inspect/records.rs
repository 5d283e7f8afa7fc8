//! Records beside locks: the runs of jobs, and the work that is done for a version.

use std::sync::Arc;

use redis::{Cmd, Value};

use crate::inspect::VALUE_READ;
use crate::inspect::servers::{Answer, Servers};
use crate::protocol::keys::Keys;
use crate::protocol::steps;
use crate::server::node::Node;
use lock_store::contract::backend::{DoneMark, JobRecord, JobVersion};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

const JOBS: &str = "read the runs of jobs";
const MARKS: &str = "read what is done";

/// Reads the record of a job.
pub(super) async fn job(servers: &Servers, from: &Arc<Node>, key: &LockKey) -> Result<Option<JobRecord>> {
    let answers = servers.ask(from, JOBS, &[get(&Keys::of(key)?.job())]).await?;
    match answers.first() {
        Some(Answer { value: Value::BulkString(text), now, .. }) => Ok(steps::read_job(text, now / 1000)),
        Some(answer) => Err(answer.refusal(JOBS)),
        None => Err(from.unreadable(JOBS)),
    }
}

/// Reads the records of jobs from a server. A key that has none is left out.
pub(super) async fn jobs(servers: &Servers, from: &Arc<Node>, keys: &[LockKey]) -> Result<Vec<(LockKey, JobRecord)>> {
    let name = |key: &LockKey| Ok(Keys::of(key)?.job());
    let read = |key: &LockKey, text: &[u8], now| Some((key.clone(), steps::read_job(text, now)?));
    each(servers, from, JOBS, keys, name, read).await
}

/// Reads marks from a server. Other values, and marks that have gone meanwhile, are left out.
pub(super) async fn marks(
    servers: &Servers,
    from: &Arc<Node>,
    marks: &[(LockKey, JobVersion)],
) -> Result<Vec<(LockKey, DoneMark)>> {
    let name = |(key, version): &(LockKey, JobVersion)| Ok(Keys::of(key)?.done(version));
    let read = |(key, version): &(LockKey, JobVersion), text: &[u8], now| {
        Some((key.clone(), steps::read_mark(text, version, now)?))
    };
    each(servers, from, MARKS, marks, name, read).await
}

/// Reads what lies at the key of each of these, at a moment of the server's time in ms.
async fn each<T, R>(
    servers: &Servers,
    from: &Arc<Node>,
    op: &str,
    of: &[T],
    name: impl Fn(&T) -> Result<String>,
    read: impl Fn(&T, &[u8], u64) -> Option<R>,
) -> Result<Vec<R>> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let commands = of.iter().map(|one| Ok(get(&name(one)?))).collect::<Result<Vec<_>>>()?;
    let answers = servers.ask(from, op, &commands).await?;
    let record = |(one, answer): (&T, &Answer)| match &answer.value {
        Value::BulkString(text) => Ok(read(one, text, answer.now / 1000)),
        // Something else lies there: no record.
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(None),
        _ => Err(answer.refusal(op)),
    };
    of.iter().zip(&answers).filter_map(|found| record(found).transpose()).collect()
}

pub(super) fn get(name: &str) -> Cmd {
    redis::cmd("GETRANGE").arg(name).arg(0).arg(VALUE_READ).to_owned()
}
