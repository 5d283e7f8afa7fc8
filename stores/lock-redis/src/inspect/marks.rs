//! Lists the work that is done for a version.

use std::sync::Arc;

use redis::Value;

use crate::inspect::VALUE_READ;
use crate::inspect::servers::{Answer, Servers};
use crate::protocol::keys::Keys;
use crate::protocol::steps;
use crate::server::node::Node;
use lock_store::contract::backend::{DoneMark, JobVersion};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

const READ: &str = "read what is done";

/// Reads marks from a server. Other values, and marks that have gone meanwhile, are left out.
pub(super) async fn read(
    servers: &Servers,
    from: &Arc<Node>,
    marks: &[(LockKey, JobVersion)],
) -> Result<Vec<(LockKey, DoneMark)>> {
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let command = |(key, version): &(LockKey, JobVersion)| {
        let mut command = redis::cmd("GETRANGE");
        command.arg(Keys::of(key)?.done(version)).arg(0).arg(VALUE_READ);
        Ok(command)
    };
    let commands = marks.iter().map(command).collect::<Result<Vec<_>>>()?;
    let answers = servers.ask(from, READ, &commands).await?;
    let mark = |((key, version), answer): (&(LockKey, JobVersion), &Answer)| match &answer.value {
        Value::BulkString(text) => {
            Ok(steps::read_mark(text, version, answer.now / 1000).map(|mark| (key.clone(), mark)))
        }
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(None),
        _ => Err(answer.refusal(READ)),
    };
    marks.iter().zip(&answers).filter_map(|found| mark(found).transpose()).collect()
}
