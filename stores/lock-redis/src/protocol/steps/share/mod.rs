//! `share.lua`: takes, renews and downgrades what claims share, and lists who holds it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::protocol::clock;
use crate::protocol::keys::Keys;
use crate::protocol::steps::lib::{CLOCK, ENTRY, PLACES, QUEUE};
use crate::protocol::steps::lock::acquire::Acquire;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::steps::step::{Read, Step, Unread};
use crate::protocol::value;
use lock_store::contract::backend::{Claim, Renewal};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::{Holder, OwnerId};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    // The functions are defined only if they are needed.
    let begins = [CLOCK, ENTRY, PLACES[0], PLACES[1], "local function library()\n"];
    Script::new(&[&begins, &QUEUE[2..], &[include_str!("share.lua"), "end\n", include_str!("join.lua")]])
});

fn step(keys: &Keys, clock: &str, name: &str) -> Eval {
    let [lock, queue, waiters] = keys.all();
    Eval::new(&SCRIPT, [lock, queue, waiters, clock]).arg(name)
}

/// Writes a mode as the scripts read it.
fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared { units, limit } => format!("s{units}/{limit}"),
    }
}

/// Takes a lock, where it or the claim that ends is shared.
pub(crate) fn acquire(acquire: &Acquire<'_>) -> Eval {
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

/// Renews a claim that shares a lock.
pub(crate) fn renew(claim: &Claim) -> Step<'_, Renewal> {
    let call = |keys: &Keys, clock: &str| {
        let known = claim.token != FencingToken::default();
        let token = if known { clock::of_phase(claim.token) } else { String::new() };
        step(keys, clock, "renew").arg(&claim.owner.digits()).arg(value::millis(claim.ttl)).arg(token)
    };
    Step { renews: true, is_missing: is_lost, ..Step::of("renew", claim, call, renewed) }
}

/// Makes an exclusive claim one that shares its lock. The claim is as it will be, the token the last that it was given.
pub(crate) fn downgrade(claim: &Claim, token: FencingToken) -> Step<'_, Renewal> {
    let call = move |keys: &Keys, clock: &str| {
        let step = step(keys, clock, "downgrade").arg(&claim.owner.digits()).arg(value::millis(claim.ttl));
        step.arg(mode(claim.mode)).arg(clock::of_phase(token))
    };
    Step { is_missing: is_lost, ..Step::of("downgrade", claim, call, renewed) }
}

fn is_lost(renewal: &Renewal) -> bool {
    *renewal == Renewal::Lost
}

/// Returns whether what lies at a lock is the phase of a claim, or the claim's alone.
pub(crate) fn may_hold(value: &[u8], claim: &Claim) -> bool {
    let text = String::from_utf8_lossy(value);
    let mut parts = text.split('|');
    let (head, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Behind the name of the lock and the history: the token of before a failover.
    let first = parts.nth(6).unwrap_or_default();
    let known = claim.token != FencingToken::default();
    head == claim.owner.to_hex()
        || head.starts_with("shared") && (!known || [token, first].contains(&&*clock::of_phase(claim.token)))
}

/// Reads the answer to one of those two.
fn renewed(answer: &Value) -> Read<Renewal> {
    match answer {
        Value::Int(0) => Ok(Renewal::Lost),
        Value::Int(1) => Ok(Renewal::Renewed),
        Value::Int(2) => Ok(Renewal::Wanted),
        Value::BulkString(text) => Err(match text.split_first() {
            Some((b'e', error)) => Unread::Failed(String::from_utf8_lossy(error).into_owned()),
            // As the server says it of any command.
            Some((b't', name)) => Unread::Failed(format!("WRONGTYPE {}", String::from_utf8_lossy(name))),
            _ => Unread::Nonsense,
        }),
        _ => Err(Unread::Nonsense),
    }
}

/// How many holders one step lists.
pub(crate) const PAGE: usize = 512;

/// Lists holders, without the first of them. Answers with the claims that share the lock, and how many were listed: some of them
/// may have left.
pub(crate) fn list(lock: &LockKey, without: usize) -> Step<'_, (Vec<Holder>, usize)> {
    let call = move |keys: &Keys, clock: &str| step(keys, clock, "list").arg(without);
    Step::new("look at the holders", lock, call, |answer| listed(answer).ok_or(Unread::Nonsense))
}

/// `None` if it cannot be read.
fn listed(answer: &Value) -> Option<(Vec<Holder>, usize)> {
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
        let is_kept = owner.starts_with(&"0".repeat(16));
        holder.owner = OwnerId::from_hex(owner);
        holder.info = value::waiter(entry).map(|(info, _)| info);
        Some((left > 0).then_some(if is_kept { holder.kept() } else { holder }))
    };
    let holders: Option<Vec<_>> = holders.chunks(3).map(read).collect();
    let (holders, listed) = (holders?, parts.len() / 3);
    Some((holders.into_iter().flatten().collect(), listed))
}
