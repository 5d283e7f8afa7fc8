//! `acquire.lua`: takes a lock that others may want, confirms it, or queues for it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::protocol::clock::{Draw, token_of_phase};
use crate::protocol::keys::{INBOX, Keys};
use crate::protocol::steps::lib::{CLOCK, ENTRY, PASS, QUEUE};
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value::Tail;
use crate::protocol::{steps, value};
use lock_store::contract::backend::{AcquireRequest, Ticket};
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::{Holder, OwnerId};

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[&[CLOCK, ENTRY], &QUEUE, &[PASS, include_str!("acquire.lua")]]));

/// One request.
pub(crate) struct Acquire<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a str,
    pub(crate) request: &'a AcquireRequest,
    /// A claim that ends first.
    pub(crate) ended: Option<OwnerId>,
    /// The deadline in µs of server time: the script does nothing after it.
    pub(crate) deadline: u64,
    /// The token must exceed it.
    pub(crate) floor: FencingToken,
    /// The name of the history of the server's data, if it is known.
    pub(crate) history: Option<&'a str>,
}

impl Acquire<'_> {
    pub(crate) fn call(&self) -> Eval {
        let [lock, queue, waiters] = self.keys.all();
        Eval::new(&SCRIPT, [lock, queue, waiters, self.clock]).with(|arguments| self.write(arguments, |_| {}))
    }

    /// Adds the arguments, with more of them before that of the claim that ends.
    pub(crate) fn write(&self, arguments: &mut redis::Cmd, more: impl FnOnce(&mut redis::Cmd)) {
        let request = self.request;
        arguments
            .arg(&request.claim.owner.digits())
            .arg(value::millis(request.claim.ttl))
            .arg(self.deadline)
            .arg(Tail { ttl: request.claim.ttl, info: &request.info })
            .arg(request.ticket.as_ref().map_or_else(String::new, ticket))
            .arg(Draw::of(self.floor).to_string());
        more(arguments);
        if let Some(ended) = self.ended {
            arguments.arg(&ended.digits());
        }
    }
}

/// Writes a ticket as `stamp|grant_ttl|inbox`, or `stamp|grant_ttl|inbox|sleep`.
fn ticket(ticket: &Ticket) -> String {
    let Ticket { stamp, grant_ttl, inbox, sleep, .. } = ticket;
    let sleep = sleep.map_or_else(String::new, |sleep| format!("|{}", value::millis(sleep)));
    format!("{stamp}|{}|{INBOX}{inbox}{sleep}", value::millis(*grant_ttl))
}

/// The answer of the script.
#[derive(Debug)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    /// The claim shares the lock.
    Shared {
        token: FencingToken,
        wanted: bool,
    },
    Held(Holder),
    Queued(Holder),
    /// The same, and the claim need not ask for so long.
    Asleep(Holder, Duration),
    Stale,
    /// No token can exceed the floor.
    FloorAhead,
    /// The key of this name is of another type.
    Mistyped(String),
    /// The text of an error.
    Failed(String),
}

impl Acquired {
    /// Reads server time in µs and the answer. `None` if it cannot be read.
    pub(crate) fn read(answer: &Value) -> Option<(u64, Self)> {
        let Value::Array(parts) = answer else { return None };
        let [Value::Int(now), Value::BulkString(text)] = parts.as_slice() else { return None };
        Some((u64::try_from(*now).ok()?, Self::of(text)?))
    }

    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let (kind, rest) = text.split_first()?;
        match kind {
            b'g' => Some(Self::Granted(Draw::read(rest)?.token()?)),
            b'j' | b'w' => Some(Self::Shared { token: token_of_phase(rest)?, wanted: *kind == b'w' }),
            b'h' => Some(Self::Held(steps::held(rest)?)),
            b'q' => Some(Self::Queued(steps::held(rest)?)),
            b'z' => {
                let bar = rest.iter().position(|byte| *byte == b'|')?;
                let sleep = std::str::from_utf8(&rest[..bar]).ok()?.parse().ok()?;
                Some(Self::Asleep(steps::held(&rest[bar + 1..])?, Duration::from_millis(sleep)))
            }
            b's' if rest.is_empty() => Some(Self::Stale),
            b'c' if rest.is_empty() => Some(Self::FloorAhead),
            b't' => Some(Self::Mistyped(std::str::from_utf8(rest).ok()?.to_owned())),
            b'e' => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}
