//! `share.lua`: takes, renews and downgrades what claims share, and lists who holds it. `join.lua` does most of it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::contract::backend::{Claim, Renewal};
use crate::stores::redis::clock::Draw;
use crate::stores::redis::keys::Keys;
use crate::stores::redis::steps::Acquire;
use crate::stores::redis::steps::lib::{CLOCK, ENTRY, LAYOUT, QUEUE};
use crate::stores::redis::steps::script::{Eval, Script};
use crate::stores::redis::value;
use crate::types::fencing::FencingToken;
use crate::types::mode::Mode;
use crate::types::owner::{Holder, OwnerId};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    // The functions are defined only if they are needed.
    let begins = [LAYOUT, CLOCK, ENTRY, "local function library()\n"];
    Script::new(&[&begins, &QUEUE, &[include_str!("share.lua"), "end\n", include_str!("join.lua")]])
});

fn step(keys: &Keys, clock: &str, name: &str) -> Eval {
    let [lock, queue, waiters] = keys.all();
    Eval::new(&SCRIPT, [lock, queue, waiters, clock].into_iter()).with(|arguments| {
        arguments.arg(name);
    })
}

/// Writes a mode as the scripts read it.
fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared { units, limit } => format!("s{units}/{limit}"),
    }
}

/// Takes a lock, where it or the claim that ends is shared.
pub(crate) fn take(acquire: &Acquire<'_>) -> Eval {
    step(acquire.keys, acquire.clock, "take").with(|arguments| {
        acquire.write(arguments, |arguments| {
            arguments.arg(mode(acquire.request.claim.mode)).arg(acquire.history.map_or_else(String::new, number));
        });
    })
}

/// Returns the number by which phases know the history of a server.
fn number(history: &str) -> String {
    let number = history.get(..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.map_or_else(String::new, |number| number.to_string())
}

/// Writes the token of a phase.
fn of_phase(token: FencingToken) -> String {
    format!("{}-{}", Draw::of(token), token.get() % FencingToken::PER_GRANT)
}

pub(crate) fn renew(keys: &Keys, clock: &str, claim: &Claim) -> Eval {
    step(keys, clock, "renew").with(|arguments| {
        let known = claim.token != FencingToken::default();
        arguments.arg(&claim.owner.digits()).arg(value::millis(claim.ttl));
        arguments.arg(if known { of_phase(claim.token) } else { String::new() });
    })
}

/// Returns whether what lies at a lock is the phase of a claim, or the claim's alone.
pub(crate) fn may_hold(value: &[u8], claim: &Claim) -> bool {
    let text = String::from_utf8_lossy(value);
    let mut parts = text.split('|');
    let (head, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let known = claim.token != FencingToken::default();
    head == claim.owner.to_hex() || head.starts_with("shared") && (!known || token.contains(&of_phase(claim.token)))
}

pub(crate) fn downgrade(keys: &Keys, clock: &str, claim: &Claim, token: FencingToken) -> Eval {
    step(keys, clock, "downgrade").with(|arguments| {
        arguments.arg(&claim.owner.digits()).arg(value::millis(claim.ttl)).arg(mode(claim.mode));
        arguments.arg(of_phase(token));
    })
}

/// Reads the answer to one of those two, or the text of an error. `None` if it makes no sense.
pub(crate) fn renewed(answer: &Value) -> Option<Result<Renewal, String>> {
    match answer {
        Value::Int(0) => Some(Ok(Renewal::Lost)),
        Value::Int(1) => Some(Ok(Renewal::Renewed)),
        Value::Int(2) => Some(Ok(Renewal::Wanted)),
        Value::BulkString(text) => match text.split_first()? {
            (b'e', error) => Some(Err(String::from_utf8_lossy(error).into_owned())),
            // As the server says it of any command.
            (b't', name) => Some(Err(format!("WRONGTYPE {}", String::from_utf8_lossy(name)))),
            _ => None,
        },
        _ => None,
    }
}

/// Reads the token of a phase, `ms-seq-number`.
pub(crate) fn token(text: &[u8]) -> Option<FencingToken> {
    let (draw, number) = std::str::from_utf8(text).ok()?.rsplit_once('-')?;
    let number: u64 = number.parse().ok().filter(|number| *number < FencingToken::PER_GRANT)?;
    Some(FencingToken::new(Draw::read(draw.as_bytes())?.token()?.get() + number))
}

/// How many holders one step lists.
pub(crate) const PAGE: usize = 512;

/// Lists holders, without the first of them.
pub(crate) fn list(keys: &Keys, clock: &str, without: usize) -> Eval {
    step(keys, clock, "list").with(|arguments| {
        arguments.arg(without);
    })
}

/// Reads who shares a lock, and how many were listed, some of which may have gone. `None` if it makes no sense.
pub(crate) fn listed(answer: &Value) -> Option<(Vec<Holder>, usize)> {
    let Value::Array(parts) = answer else { return None };
    let (Value::Int(now), holders) = parts.split_first()? else { return None };
    let now_ms = *now / 1000;
    let read = |holder: &[Value]| {
        let [Value::BulkString(owner), Value::BulkString(score), Value::BulkString(entry)] = holder else {
            return None;
        };
        let owner = std::str::from_utf8(owner).ok()?;
        let score: f64 = std::str::from_utf8(score).ok()?.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
        let left = u64::try_from(-score as i64 - now_ms).unwrap_or(0);
        let mut holder = Holder::foreign(Some(Duration::from_millis(left)));
        // Released, but kept for the rest of its `min_hold`.
        holder.owner = OwnerId::from_hex(owner).filter(|_| !owner.starts_with(&"0".repeat(16)));
        holder.info = value::waiter(entry).map(|(info, _)| info);
        Some((left > 0).then_some(holder))
    };
    let holders: Option<Vec<_>> = holders.chunks(3).map(read).collect();
    let (holders, listed) = (holders?, parts.len() / 3);
    Some((holders.into_iter().flatten().collect(), listed))
}
