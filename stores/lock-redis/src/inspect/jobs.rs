//! The jobs that have a period.

use std::sync::Arc;

use redis::Value;

use crate::inspect::VALUE_READ;
use crate::inspect::servers::{Answer, Servers};
use crate::protocol::keys::Keys;
use crate::protocol::steps;
use crate::server::node::Node;
use lock_store::contract::backend::JobRecord;
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

const READ: &str = "read the runs of jobs";

/// Reads the record of a job.
pub(super) async fn read_one(servers: &Servers, from: &Arc<Node>, key: &LockKey) -> Result<Option<JobRecord>> {
    let answers = ask(servers, from, std::slice::from_ref(key)).await?;
    match answers.first() {
        Some(Answer { value: Value::BulkString(text), now, .. }) => Ok(steps::read_job(text, now / 1000)),
        Some(answer) => Err(answer.refusal(READ)),
        None => Err(from.unreadable(READ)),
    }
}

/// Reads the records of jobs from a server. A key that has none is left out.
pub(super) async fn read(servers: &Servers, from: &Arc<Node>, keys: &[LockKey]) -> Result<Vec<(LockKey, JobRecord)>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let answers = ask(servers, from, keys).await?;
    let record = |(key, answer): (&LockKey, &Answer)| match &answer.value {
        Value::BulkString(text) => Ok(steps::read_job(text, answer.now / 1000).map(|record| (key.clone(), record))),
        // Something else lies there: no record.
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(None),
        _ => Err(answer.refusal(READ)),
    };
    keys.iter().zip(&answers).filter_map(|found| record(found).transpose()).collect()
}

async fn ask(servers: &Servers, from: &Arc<Node>, keys: &[LockKey]) -> Result<Vec<Answer>> {
    let command = |key: &LockKey| {
        let mut command = redis::cmd("GETRANGE");
        command.arg(Keys::of(key)?.job()).arg(0).arg(VALUE_READ);
        Ok(command)
    };
    let commands = keys.iter().map(command).collect::<Result<Vec<_>>>()?;
    servers.ask(from, READ, &commands).await
}
