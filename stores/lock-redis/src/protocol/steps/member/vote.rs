//! `vote.lua` and `members.lua`: what a quorum asks of a server that is a member.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use crate::protocol::clock::Draw;
use crate::protocol::keys::{BIRTH, Keys, MEMBERS};
use crate::protocol::steps::lib::{CLOCK, LOCK, MEMBER};
use crate::protocol::steps::lock::acquire::Acquired;
use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value::{self, Tail};
use lock_store::contract::backend::{AcquireRequest, MemberList};
use lock_store::types::fencing::FencingToken;

static VOTE: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[CLOCK, LOCK, MEMBER, include_str!("vote.lua")]]));

static MEMBERSHIP: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("members.lua")]]));

/// Asks for a lock. `deadline` is server time in µs.
pub(crate) fn vote(keys: &Keys, request: &AcquireRequest, deadline: u64, floor: FencingToken) -> Eval {
    let claim = &request.claim;
    Eval::new(&VOTE, [keys.lock(), &keys.fence(), BIRTH])
        .arg(&claim.owner.digits())
        .arg(value::millis(claim.ttl))
        .arg(deadline)
        .arg(Tail { ttl: claim.ttl, info: &request.info })
        .arg(Draw::of(floor).to_string())
}

/// The answer of a member.
pub(crate) struct VoteAnswer {
    /// Its time, in µs.
    pub(crate) time: u64,
    /// For how long it has kept its data.
    pub(crate) age: Duration,
    /// Whether the lock belonged to the claim already.
    pub(crate) kept: bool,
    pub(crate) answer: Acquired,
}

/// Reads the answer of a member. `None` if it cannot be read.
pub(crate) fn read_vote(answer: &Value) -> Option<VoteAnswer> {
    let Value::Array(parts) = answer else { return None };
    let [Value::Int(time), Value::Int(age), Value::Int(kept), Value::BulkString(text)] = parts.as_slice() else {
        return None;
    };
    let age = Duration::from_millis(u64::try_from(*age).ok()?);
    Some(VoteAnswer { time: u64::try_from(*time).ok()?, age, kept: *kept == 1, answer: Acquired::of(text)? })
}

/// Asks for the lists that are remembered, with another one to remember.
pub(crate) fn remember(list: Option<&MemberList>, keep_for: Duration) -> Eval {
    membership(&list.map(MemberList::to_text).unwrap_or_default(), keep_for)
}

/// Declares that the data have no gap.
pub(crate) fn vouch() -> Eval {
    membership("vouch", Duration::ZERO)
}

fn membership(what: &str, keep_for: Duration) -> Eval {
    Eval::new(&MEMBERSHIP, [MEMBERS, BIRTH]).arg(what).arg(value::millis(keep_for))
}

/// Reads lists of members. `None` if it cannot be read.
pub(crate) fn read_lists(answer: &Value) -> Option<Vec<MemberList>> {
    let Value::Array(lists) = answer else { return None };
    let read = |list: &Value| match list {
        Value::BulkString(text) => MemberList::from_text(std::str::from_utf8(text).ok()?),
        _ => None,
    };
    lists.iter().map(read).collect()
}
