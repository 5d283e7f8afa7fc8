//! `batch.lua`: frees locks and takes free ones, in any slots of one master of a cluster.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use crate::protocol::clock::Draw;
use crate::protocol::keys::{ClockOf, Keys, QueueOf, clock_of};
use crate::protocol::steps::lib::{CLOCK, ENTRY, FREE, PASS, QUEUE};
use crate::protocol::steps::lock::native::Taken;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value::{self, Tail, Whole};
use lock_store::contract::backend::{AcquireRequest, Claim};
use lock_store::types::key::LockKey;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    // The functions are defined only if they are needed, and then for the slot of one lock.
    let begins = ["local guarded = pcall\n", "local function library(KEYS)\n", CLOCK, ENTRY];
    Script::new(&[&begins, &QUEUE, &[FREE, "end\n", PASS, include_str!("batch.lua")]])
});

/// One call of a batch.
#[derive(Debug)]
pub(crate) enum NodeCall {
    /// Frees a lock at once.
    Free(Claim),
    /// Takes a lock if nobody has it.
    Take(NodeTake),
}

/// The part that takes a lock.
#[derive(Debug)]
pub(crate) struct NodeTake {
    lock: LockKey,
    /// The lock, its clock and its value.
    words: Cmd,
    /// In ms.
    ttl: u64,
    /// Server time in µs, after which nothing is done.
    deadline: u64,
}

impl NodeTake {
    /// `since` is server time in ms, `deadline` in µs.
    pub(crate) fn new(request: &AcquireRequest, since: u64, deadline: u64) -> Self {
        let AcquireRequest { claim, info, .. } = request;
        let (lock, tail) = (claim.key.clone(), Tail { ttl: claim.ttl, info });
        let mut words = Cmd::with_capacity(3, 2 * lock.as_str().len() + 96 + tail.length());
        words.arg(lock.as_str()).arg(ClockOf(&lock)).arg(Whole { owner: claim.owner, since, tail });
        Self { lock, words, ttl: value::millis(claim.ttl), deadline }
    }
}

impl NodeCall {
    /// Returns whether it takes a lock.
    pub(crate) fn takes(&self) -> bool {
        matches!(self, Self::Take(_))
    }

    /// Returns for how many ms the lock is taken, 0 if it is freed. Calls with the same leave together, and those that free
    /// locks with any of them, before them.
    pub(crate) fn ttl(&self) -> u64 {
        if let Self::Take(take) = self { take.ttl } else { 0 }
    }

    /// The call by itself, with its keys declared.
    pub(crate) fn alone(&self) -> Eval {
        let (Self::Free(Claim { key: lock, .. }) | Self::Take(NodeTake { lock, .. })) = self;
        let (keys, clock) = (Keys::of_taken(lock), clock_of(lock));
        let [lock, queue, waiters] = keys.all();
        let eval = match self {
            Self::Free(..) => Eval::new(&SCRIPT, [lock, queue, waiters, &clock]),
            Self::Take(_) => Eval::new(&SCRIPT, [lock, &clock]),
        };
        eval.with(|words| write(std::iter::once(self), words))
    }

    /// All of these calls, without declared keys.
    pub(crate) fn together<'a>(calls: impl Iterator<Item = &'a Self> + Clone) -> Eval {
        Eval::of(&SCRIPT, 0).with(|words| write(calls, words))
    }
}

fn write<'a>(calls: impl Iterator<Item = &'a NodeCall> + Clone, to: &mut Cmd) {
    // The earliest deadline applies to all. A call with more time learns that it was not executed, and asks again.
    let (mut freed, mut ttl, mut deadline) = (0_u64, 0, u64::MAX);
    for call in calls.clone() {
        match call {
            NodeCall::Free(..) => freed += 1,
            NodeCall::Take(take) => (ttl, deadline) = (take.ttl, deadline.min(take.deadline)),
        }
    }
    to.arg(freed).arg(ttl).arg(deadline);
    for call in calls {
        match call {
            NodeCall::Free(Claim { key, owner, .. }) => {
                to.arg(key.as_str()).arg(QueueOf(key)).arg(ClockOf(key)).arg(&value::head(*owner));
            }
            NodeCall::Take(take) => {
                for word in take.words.args_iter() {
                    if let redis::Arg::Simple(word) = word {
                        to.arg(word);
                    }
                }
            }
        }
    }
}

/// Reads server time in µs and the answers of `count` calls. `None` if it cannot be read.
pub(crate) fn read_batch(answer: Value, count: usize) -> Option<(u64, std::vec::IntoIter<Value>)> {
    let Value::Array(answers) = answer else { return None };
    let mut answers = answers.into_iter();
    let (Some(Value::Int(now)), true) = (answers.next(), answers.len() == count) else { return None };
    Some((u64::try_from(now).ok()?, answers))
}

/// Returns whether a command of a call failed, so that nothing was done.
pub(crate) fn has_failed(answer: &Value) -> bool {
    matches!(answer, Value::BulkString(text) if text.first() == Some(&b'e'))
}

/// Reads the answer to the call that takes a lock.
pub(crate) fn read_attempt(answer: &Value) -> Taken {
    let Value::BulkString(text) = answer else { return Taken::Doubtful };
    match text.as_slice() {
        b"h" => Taken::Occupied,
        b"s" => Taken::NotExecuted,
        id => Draw::read(id).map_or(Taken::Doubtful, Taken::With),
    }
}
