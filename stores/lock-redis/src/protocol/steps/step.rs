//! The parts of every step: a name, a lock, a call, and how the answer is read.

use std::time::Duration;

use redis::Value;

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::Eval;
use lock_store::contract::backend::{Claim, JobVersion};
use lock_store::types::error::LockError;
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;

/// How long a step that only reads may take.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(1);

/// One step with one lock on the server. A store runs it at the server that has the lock.
#[expect(missing_debug_implementations, reason = "it is made of closures")]
pub struct Step<'a, A> {
    /// Its name in errors.
    pub(crate) op: &'static str,
    /// The lock that it is about.
    pub(crate) lock: &'a LockKey,
    /// The version that it is about, if it is.
    pub(crate) version: Option<&'a JobVersion>,
    /// The claim that it is about, if its work counts only once it has arrived wherever the claim wants it.
    pub claim: Option<&'a Claim>,
    /// How long it may take to find the server that has the lock, and have its answer.
    pub within: Duration,
    /// Whether it renews a lease, which waits behind nothing else.
    pub renews: bool,
    /// Whether an answer says that something is missing. It counts only if a master gave it: a replica may not know of it.
    pub is_missing: fn(&A) -> bool,
    pub(crate) call: Box<CallOf<'a>>,
    pub(crate) read: Box<ReadOf<'a, A>>,
}

/// Makes the call. All of its keys are in the slot of the lock, as the clock is whose name it gets.
type CallOf<'a> = dyn Fn(&Keys, &str) -> Eval + Send + Sync + 'a;

/// Reads the answer.
type ReadOf<'a, A> = dyn Fn(&Value) -> Read<A> + Send + Sync + 'a;

impl<'a, A> Step<'a, A> {
    /// Makes a step of a name about a lock.
    pub fn new(
        op: &'static str,
        lock: &'a LockKey,
        call: impl Fn(&Keys, &str) -> Eval + Send + Sync + 'a,
        read: impl Fn(&Value) -> Read<A> + Send + Sync + 'a,
    ) -> Self {
        let (call, read, is_missing) = (Box::new(call), Box::new(read), |_: &A| false);
        Self { op, lock, version: None, claim: None, within: READ_WITHIN, renews: false, is_missing, call, read }
    }

    /// The same for a claim.
    pub(crate) fn of(
        op: &'static str,
        claim: &'a Claim,
        call: impl Fn(&Keys, &str) -> Eval + Send + Sync + 'a,
        read: impl Fn(&Value) -> Read<A> + Send + Sync + 'a,
    ) -> Self {
        let within = command_timeout(claim.ttl);
        Self { claim: Some(claim), within, ..Self::new(op, &claim.key, call, read) }
    }
}

/// The meaning of an answer.
pub(crate) type Read<T> = Result<T, Unread>;

/// Why an answer says nothing of what was asked.
#[derive(Debug)]
pub enum Unread {
    /// It cannot be read.
    Nonsense,
    /// It is the text of an error.
    Failed(String),
    /// It says that this cannot be done.
    Refused(LockError),
}
