//! The first attempt at locks that are probably free: `MULTI`, a `SET … NX PX` for each, one draw from the
//! clock for all of them, `EXEC`. It needs no script, so the server does less work than for the raw
//! protocol.
//!
//! It is a copy of what `acquire.lua` does with a free lock that has no queue, but does not look whether it has one. It is one
//! transaction, because somebody else could get a greater token between a lock and its token. It knows nothing about
//! queues and deadlines: what it cannot do, or may have done, is left to `acquire.lua`.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, RedisError, Value};

use crate::protocol::clock::Draw;
use crate::protocol::keys::CLOCK;
use crate::protocol::value::{self, Tail, Whole};
use lock_store::contract::backend::AcquireRequest;

/// The part of one lock. `since` is server time, ms.
pub(crate) fn take(request: &AcquireRequest, since: u64) -> Cmd {
    let AcquireRequest { claim, info, .. } = request;
    let (lock, tail) = (claim.key.as_str(), Tail { ttl: claim.ttl, info });
    // Enough for all of it: the message is written once.
    let mut command = Cmd::with_capacity(6, lock.len() + 96 + tail.length());
    let value = Whole { owner: claim.owner, since, tail };
    command.arg("SET").arg(lock).arg(value).arg("NX").arg("PX").arg(value::millis(claim.ttl));
    command
}

/// The commands around the parts.
struct Frame {
    before: Cmd,
    /// The draw, and one that empties the clock.
    draws: [Cmd; 2],
    after: Cmd,
}

static FRAME: LazyLock<Frame> = LazyLock::new(|| {
    let draw = |kept: u8| {
        let mut draw = redis::cmd("XADD");
        draw.arg(CLOCK).arg("MAXLEN").arg("~").arg(kept).arg("*").arg("k").arg("v");
        draw
    };
    Frame { before: redis::cmd("MULTI"), draws: [draw(1), draw(0)], after: redis::cmd("EXEC") }
});

/// Adds the transaction of some parts. The answer has one entry for each part and two more, then
/// that of `EXEC`. `empties` removes what the clock still holds of earlier draws, as `clock.lua` explains.
pub(crate) fn draw(pipeline: &mut Pipeline, takes: impl IntoIterator<Item = Cmd>, empties: bool) {
    let Frame { before, draws, after } = &*FRAME;
    pipeline.add_command(before.clone());
    for take in takes {
        pipeline.add_command(take);
    }
    pipeline.add_command(draws[usize::from(empties)].clone()).add_command(after.clone());
}

/// The outcome of one part.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// The lock is taken, at the instant of this draw.
    With(Draw),
    /// Another holder has it.
    Occupied,
    /// The lock may be taken, without a token: the script must be asked.
    Doubtful,
    /// No part was executed, because of another part.
    NotExecuted,
    /// It was not executed, and why.
    Refused(RedisError),
    /// The lock may be taken and must be given back, because tokens are missing.
    NoClock(RedisError),
}

/// Reads the answers to the transaction of `count` parts. It is certain that nothing was done only if `MULTI`
/// was accepted and `EXEC` refused.
pub(crate) fn read_taken(answers: &[Value], count: usize) -> Vec<Taken> {
    let doubtful = || vec![Taken::Doubtful; count];
    let [Value::Okay, queued @ .., outcome] = answers else { return doubtful() };
    if queued.len() != count + 1 {
        return doubtful();
    }
    let error = |answer: &Value| match answer {
        Value::ServerError(error) => Some(RedisError::from(error.clone())),
        _ => None,
    };
    match outcome {
        Value::ServerError(aborted) if aborted.code() == "EXECABORT" => {
            if let Some(why) = error(&queued[count]) {
                // Garnet does not say which command it does not know.
                let unnamed = why.detail() == Some("unknown command");
                let named = || redis::make_extension_error("ERR".to_owned(), Some("unknown command 'XADD'".to_owned()));
                let why = if unnamed { named() } else { why };
                return vec![Taken::Refused(why); count];
            }
            let part = |answer| error(answer).map_or(Taken::NotExecuted, Taken::Refused);
            queued[..count].iter().map(part).collect()
        }
        Value::Array(results) if results.len() == count + 1 => {
            let (sets, drawn) = results.split_at(count);
            let taken = match &drawn[0] {
                Value::BulkString(id) => Draw::read(id).map_or(Taken::Doubtful, Taken::With),
                answer => match error(answer) {
                    // Another program wrote invalid data: the script corrects it.
                    Some(why) if why.detail().is_some_and(|text| text.contains("exhausted")) => Taken::Doubtful,
                    Some(why) => Taken::NoClock(why),
                    None => Taken::Doubtful,
                },
            };
            let part = |set: &Value| match set {
                Value::Okay => taken.clone(),
                Value::Nil => Taken::Occupied,
                answer => error(answer).map_or(Taken::Doubtful, Taken::Refused),
            };
            sets.iter().map(part).collect()
        }
        _ => doubtful(),
    }
}
