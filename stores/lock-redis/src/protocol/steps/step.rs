//! The parts of every step: a name, a lock, a call, and how the answer is read.

use std::time::Duration;

use redis::Value;

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::Eval;
use lock_store::contract::backend::JobVersion;
use lock_store::types::error::LockError;
use lock_store::types::key::LockKey;

/// How long a step that only reads may take.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(1);

/// One step with one lock on the server. A store runs it at the server that has the lock.
pub(crate) trait Step: Send + Sync {
    type Answer: Send;

    /// The name of the step in errors.
    const OP: &'static str;

    /// Whether it renews a lease, which waits behind nothing else.
    const RENEWS: bool = false;

    /// The lock that it is about.
    fn lock(&self) -> &LockKey;

    /// How long it may take to find the server that has the lock, and have its answer.
    fn within(&self) -> Duration {
        READ_WITHIN
    }

    /// The version that it is about, if it is.
    fn version(&self) -> Option<&JobVersion> {
        None
    }

    /// The call. All of its keys are in the slot of the lock, as `clock` is.
    fn call(&self, keys: &Keys, clock: &str) -> Eval;

    /// Reads the answer.
    fn read(&self, answer: &Value) -> Read<Self::Answer>;
}

/// The meaning of an answer.
pub(crate) type Read<T> = Result<T, Unread>;

/// Why an answer says nothing of what was asked.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It cannot be read.
    Nonsense,
    /// It is the text of an error.
    Failed(String),
    /// It says that this cannot be done.
    Refused(LockError),
}
