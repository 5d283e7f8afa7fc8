//! `acquire_all.lua`: takes several locks or none.

use std::sync::LazyLock;

use redis::Value;

use crate::protocol::clock::Draw;
use crate::protocol::keys::Keys;
use crate::protocol::steps::lib::{CLOCK, ENTRY, QUEUE};
use crate::protocol::steps::lock::acquire::Acquired;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value::{self, Tail};
use lock_store::contract::backend::AcquireRequest;
use lock_store::types::fencing::FencingToken;

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[&[CLOCK, ENTRY], &QUEUE, &[include_str!("acquire_all.lua")]]));

/// One request for several locks.
pub(crate) struct AcquireAll<'a> {
    pub(crate) keys: &'a [Keys],
    pub(crate) clock: &'a str,
    pub(crate) requests: &'a [AcquireRequest],
    /// The deadline in µs of server time: the script does nothing after it.
    pub(crate) deadline: u64,
    /// The token must exceed it.
    pub(crate) floor: FencingToken,
}

impl AcquireAll<'_> {
    pub(crate) fn call(&self) -> Eval {
        let keys: Vec<&str> = self.keys.iter().flat_map(Keys::all).chain([self.clock]).collect();
        Eval::new(&SCRIPT, keys).with(|arguments| {
            arguments.arg(self.deadline).arg(Draw::of(self.floor).to_string());
            for AcquireRequest { claim, info, .. } in self.requests {
                arguments.arg(&claim.owner.digits()).arg(value::millis(claim.ttl)).arg(Tail { ttl: claim.ttl, info });
            }
        })
    }
}

/// The answer of the script.
#[derive(Debug)]
pub(crate) enum AcquiredAll {
    Granted(FencingToken),
    /// The number of a lock that could not be taken, and why. None was taken.
    Refused(usize, Acquired),
}

impl AcquiredAll {
    /// Reads server time in µs and the answer. `None` if it cannot be read.
    pub(crate) fn read(answer: &Value) -> Option<(u64, Self)> {
        let Value::Array(parts) = answer else { return None };
        let [Value::Int(now), Value::Int(place), Value::BulkString(text)] = parts.as_slice() else { return None };
        let answer = match usize::try_from(*place).ok()? {
            0 => Self::Granted(Draw::read(text)?.token()?),
            place => Self::Refused(place - 1, Acquired::of(text)?),
        };
        Some((u64::try_from(*now).ok()?, answer))
    }
}
