//! `batch.lua`: takes free locks and frees locks, in any slots of one master of a cluster.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use crate::backend::AcquireRequest;
use crate::owner::OwnerId;
use crate::redis::clock::Draw;
use crate::redis::keys::Keys;
use crate::redis::script::{Eval, Script};
use crate::redis::steps::Taken;
use crate::redis::value::{self, Tail, Whole};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        "local guarded = pcall\n",
        // The functions are defined only if they are needed, and then for the slot of one lock.
        "local function library(KEYS)\n",
        include_str!("clock.lua"),
        include_str!("queue.lua"),
        include_str!("phase.lua"),
        include_str!("free.lua"),
        "end\n",
        include_str!("batch.lua"),
    ))
});

/// One call of a batch.
#[derive(Debug)]
pub(crate) struct NodeCall {
    what: &'static str,
    keys: Vec<String>,
    arguments: Cmd,
}

impl NodeCall {
    /// Takes a lock if nobody has it. `since` is server time in ms, `deadline` in µs: nothing is done after it.
    pub(crate) fn take(request: &AcquireRequest, keys: &Keys, since: u64, deadline: u64) -> Self {
        let AcquireRequest { claim, info, .. } = request;
        let tail = Tail { ttl: claim.ttl, info };
        let mut arguments = Cmd::with_capacity(3, 96 + tail.length());
        let value = Whole { owner: claim.owner, since, tail };
        arguments.arg(value).arg(value::millis(claim.ttl)).arg(deadline);
        Self { what: "take", keys: vec![keys.lock().to_owned(), keys.clock_of_slot().into_owned()], arguments }
    }

    /// Frees a lock at once.
    pub(crate) fn free(keys: &Keys, owner: OwnerId) -> Self {
        let [lock, queue, waiters] = keys.all();
        let mut arguments = Cmd::new();
        arguments.arg(&value::head(owner));
        let clock = &*keys.clock_of_slot();
        Self { what: "free", keys: [lock, queue, waiters, clock].map(str::to_owned).into(), arguments }
    }

    /// The call by itself, with its keys declared.
    pub(crate) fn alone(&self) -> Eval {
        Eval::new(&SCRIPT, self.keys.iter().map(String::as_str)).with(|arguments| self.write(arguments))
    }

    /// All of these calls, without declared keys.
    pub(crate) fn together<'a>(calls: impl Iterator<Item = &'a Self>) -> Eval {
        Eval::new(&SCRIPT, std::iter::empty()).with(|arguments| calls.for_each(|call| call.write(arguments)))
    }

    fn write(&self, to: &mut Cmd) {
        to.arg(self.what).arg(&self.keys);
        for argument in self.arguments.args_iter() {
            if let redis::Arg::Simple(argument) = argument {
                to.arg(argument);
            }
        }
    }
}

/// Reads server time in µs and the answers of `count` calls. `None` if it makes no sense.
pub(crate) fn read_batch(answer: Value, count: usize) -> Option<(u64, Vec<Value>)> {
    let Value::Array(mut answers) = answer else { return None };
    if answers.len() != count + 1 {
        return None;
    }
    let Value::Int(now) = answers.remove(0) else { return None };
    Some((u64::try_from(now).ok()?, answers))
}

/// Returns whether a command of a call failed, so that nothing was done.
pub(crate) fn has_failed(answer: &Value) -> bool {
    matches!(answer, Value::BulkString(text) if text.first() == Some(&b'e'))
}

/// Reads the answer to the call that takes a lock.
pub(crate) fn read_attempt(answer: &Value) -> Taken {
    let Value::BulkString(text) = answer else { return Taken::Doubtful };
    match text.split_first() {
        Some((b'g', id)) => Draw::read(id).map_or(Taken::Doubtful, Taken::With),
        Some((b'h', [])) => Taken::Occupied,
        Some((b's', [])) => Taken::NotExecuted,
        _ => Taken::Doubtful,
    }
}
