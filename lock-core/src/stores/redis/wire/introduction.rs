//! What a server says about itself when a connection is opened.

use std::sync::Arc;

use redis::Value;

use crate::types::error::{LockError, Result};

/// What a server says about itself.
pub(crate) struct Introduction {
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) mode: Option<String>,
    role: Option<String>,
    /// The name of the history of its data (`master_replid`), if it tells. No server but its replicas shares it. It
    /// changes when the server is promoted, and when it starts.
    pub(crate) history: Option<Arc<str>>,
    /// Whether it has gone on with the data of another server (`master_replid2`): it was promoted. A master that begins a
    /// new history because it gets its first replica has not.
    pub(crate) is_heir: bool,
}

impl Introduction {
    /// Reads the answers to `HELLO` and `INFO replication`.
    pub(crate) fn read(hello: Option<Value>, info: Option<Value>) -> Self {
        let words = if let Some(Value::Map(words)) = hello { words } else { Vec::new() };
        let word = |name: &str| {
            words.iter().find_map(|word| match word {
                (Value::BulkString(key), Value::BulkString(word)) if key == name.as_bytes() => {
                    String::from_utf8(word.clone()).ok()
                }
                _ => None,
            })
        };
        let info: Option<String> = info.and_then(|info| redis::from_redis_value(info).ok());
        let told = |name: &str| {
            let line = info.as_deref()?.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        let history = told("master_replid:").map(Arc::from);
        let is_heir = told("master_replid2:").is_some_and(|before| before.bytes().any(|digit| digit != b'0'));
        Self { mode: word("mode"), role: word("role"), history, is_heir }
    }

    /// Returns whether it is a replica, if it tells.
    pub(crate) fn is_replica(&self) -> Option<bool> {
        self.role.as_deref().map(|role| role == "replica")
    }

    /// Checks that locks can be kept there.
    pub(crate) fn check(&self, node: &str, master_only: bool) -> Result<()> {
        if self.mode.as_deref() == Some("sentinel") {
            return Err(LockError::misconfigured(format!(
                "{node} is a sentinel, which keeps no locks; write redis+sentinel://{node}/service, where service is the \
                 name that `sentinel monitor` gave the master",
            )));
        }
        if master_only && self.is_replica() == Some(true) {
            return Err(LockError::not_executed(format!(
                "{node} is a replica, although its sentinels name it as the master; wait for the failover to end",
            )));
        }
        Ok(())
    }
}
