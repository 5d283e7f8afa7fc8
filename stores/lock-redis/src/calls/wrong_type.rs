//! The error if a key of a lock has another type than this library writes there.

use redis::Value;

use crate::calls::run::Operation;
use crate::protocol::keys::{BIRTH, CLOCK, Keys, MEMBERS, clock_of};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::JobVersion;
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;

/// Looks for a key of a lock, or of the mark of this version, that holds something else, and describes it.
pub(crate) struct FindOtherType<'a>(pub(crate) &'a LockKey, pub(crate) Option<&'a JobVersion>);

impl Operation for FindOtherType<'_> {
    type Answer = Option<LockError>;

    fn lock(&self) -> &LockKey {
        self.0
    }

    async fn at(&self, node: &Node, _: Way) -> Result<Option<LockError>> {
        let op = "look at the keys of a lock";
        let parts = parts(self.0, &Keys::of(self.0)?, self.1);
        let mut asking = redis::pipe();
        for part in &parts {
            asking.cmd("TYPE").arg(&part.name);
        }
        let connection = node.pool.connection().await?;
        let answers = connection.link.send_all(&asking).await.map_err(|error| node.failed(op, &error))?;
        let found = parts.iter().zip(answers).find_map(|(part, answer)| match answer {
            Value::SimpleString(found) if found != "none" && found != part.expected => {
                Some(part.described(&found, self.0))
            }
            _ => None,
        });
        Ok(found)
    }
}

/// A key, what type it is of if we wrote it, and what then lies there.
struct Part {
    name: String,
    expected: &'static str,
    purpose: Option<&'static str>,
}

/// Lists the keys that the steps of a lock touch.
fn parts(lock: &LockKey, keys: &Keys, version: Option<&JobVersion>) -> Vec<Part> {
    let part = |name: &str, expected, purpose| Part { name: name.to_owned(), expected, purpose };
    let mut parts = vec![
        part(keys.lock(), "string", None),
        part(keys.queue(), "zset", Some("the queue")),
        part(keys.waiters(), "hash", Some("those who wait for or share the lock")),
        part(&keys.blocked(), "string", Some("what its holder waits for")),
        part(&keys.job(), "string", Some("the last run of its job")),
        part(&keys.fence(), "string", Some("its last fencing token")),
        part(&clock_of(lock), "stream", Some("the clock of the fencing tokens")),
        part(CLOCK, "stream", Some("the clock of the fencing tokens")),
        part(BIRTH, "string", Some("since when the server has kept its data")),
        part(MEMBERS, "hash", Some("the lists of a quorum's members")),
    ];
    parts.extend(
        version.map(|version| part(&keys.done(version), "string", Some("that its work is done for a version"))),
    );
    parts
}

impl Part {
    fn described(&self, found: &str, lock: &LockKey) -> LockError {
        let Self { name, expected, purpose } = self;
        LockError::misconfigured(match purpose {
            None => format!(
                "the Redis key {name:?} holds a {found}, another type than a {expected}, so no lock can be taken; it \
                 belongs to another program{}; choose another key",
                if found == "hash" { ", such as a lock of Redisson" } else { "" },
            ),
            Some(purpose) => format!(
                "the Redis key {name:?} holds a {found}, where the lock {:?} has a {expected}, {purpose}; delete that key, \
                 and find out who writes to it",
                lock.as_str(),
            ),
        })
        .with_key(lock)
    }
}
