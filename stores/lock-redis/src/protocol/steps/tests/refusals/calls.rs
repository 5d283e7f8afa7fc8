//! Every step, called for one lock by one claim.

use std::time::Duration;

use crate::protocol::clock::Draw;
use crate::protocol::keys::{CLOCK, Keys};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::tests::refusals::{Aim, KEPT, LEASE, LONGER};
use crate::protocol::steps::{
    Acquire, AcquireAll, NodeCall, NodeTake, confirm, free_one, note_run, read_blocked, read_done, read_holder,
    read_job_of, release, remember, remove_done, renew, share, vote, vouch, write_blocked, write_done,
};
use lock_store::contract::backend::{AcquireRequest, Blocked, Claim, JobRun, JobVersion, MemberList, Ticket};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::{HolderInfo, OwnerId};

fn owner(letter: &str) -> OwnerId {
    OwnerId::from_hex(&letter.repeat(32)).unwrap()
}

fn claim(key: &str, letter: &str, mode: Mode) -> Claim {
    let mut claim = Claim::new(LockKey::new(key).unwrap(), LONGER).with_mode(mode);
    claim.owner = owner(letter);
    claim
}

fn request(key: &str, letter: &str, mode: Mode, waits: bool) -> AcquireRequest {
    let mut request = AcquireRequest::new(claim(key, letter, mode), HolderInfo::new("h", 1, "s"));
    request.ticket = waits.then(|| {
        let mut ticket = Ticket::new("listens".into(), 9, LEASE);
        ticket.sleep = Some(LEASE / 2);
        ticket
    });
    request
}

/// The acquire of a claim that confirms its place, until this server time in µs.
pub(in crate::protocol::steps::tests) fn place(key: &str, keys: &Keys, deadline: u64) -> Eval {
    let request = request(key, "a", Mode::Exclusive, true);
    let floor = FencingToken::default();
    let (ended, history) = (None, None);
    Acquire { keys, clock: CLOCK, request: &request, ended, deadline, floor, history }.call()
}

/// Later than any deadline.
pub(in crate::protocol::steps::tests) const DEADLINE: u64 = 8_000_000_000_000_000;

pub(in crate::protocol::steps::tests) fn steps() -> Vec<(&'static str, Aim, Eval)> {
    let keys = Keys::of_taken(&LockKey::new("k").unwrap());
    let other_keys = [keys.clone(), Keys::of_taken(&LockKey::new("{k}2").unwrap())];
    let permit = Mode::permits(2, 4).unwrap();
    let mut steps = Vec::new();
    for (name, mode, waits, ended) in [
        ("acquire", Mode::Exclusive, true, false),
        ("acquire without waiting", Mode::Exclusive, false, false),
        ("requeue", Mode::Exclusive, true, true),
        ("read", Mode::READ, true, false),
        ("take two permits", permit, true, false),
        ("take two permits without waiting", permit, false, false),
        ("requeue to read", Mode::READ, true, true),
        ("requeue to write", Mode::Exclusive, true, true),
    ] {
        let request = request("k", if ended { "d" } else { "a" }, mode, waits);
        let floor = FencingToken::default();
        let ended = ended.then(|| owner("a"));
        let call = Acquire {
            keys: &keys,
            clock: CLOCK,
            request: &request,
            ended,
            deadline: DEADLINE,
            floor,
            history: Some("abcdef0123456789"),
        };
        let aim = if ended.is_some() { Aim::Requeue } else { Aim::Take };
        let shares = mode.is_shared() || name == "requeue to write";
        steps.push((name, aim, if shares { share::acquire(&call) } else { call.call() }));
    }
    let confirmed: Vec<Eval> =
        ["k", "{k}2"].into_iter().zip(&other_keys).map(|(key, keys)| place(key, keys, DEADLINE)).collect();
    steps.push(("confirm two places", Aim::Take, confirm(&[&confirmed[0], &confirmed[1]])));
    let both = [request("k", "a", Mode::Exclusive, false), request("{k}2", "a", Mode::Exclusive, false)];
    let all = |requests| {
        let floor = FencingToken::default();
        AcquireAll { keys: &other_keys, clock: CLOCK, requests, deadline: DEADLINE, floor }.call()
    };
    steps.push(("acquire all", Aim::TakeAll, all(&both)));
    let [first, second] = both;
    steps.push(("acquire all, the other way round", Aim::TakeAll, {
        let floor = FencingToken::default();
        let keys = [other_keys[1].clone(), other_keys[0].clone()];
        AcquireAll { keys: &keys, clock: CLOCK, requests: &[second, first], deadline: DEADLINE, floor }.call()
    }));
    let (alone, shared) = (claim("k", "a", Mode::Exclusive), claim("k", "a", Mode::permits(1, 4).unwrap()));
    for (name, claim, keep) in [
        ("release", &alone, Duration::ZERO),
        ("release, and keep it", &alone, KEPT),
        ("release a permit", &shared, Duration::ZERO),
        ("release a permit, and keep it", &shared, KEPT),
    ] {
        steps.push((name, Aim::Release, release([claim].into_iter(), CLOCK, keep)));
    }
    let other = claim("{k}2", "a", Mode::Exclusive);
    steps.push(("release two", Aim::Release, release([&other, &alone].into_iter(), CLOCK, Duration::ZERO)));
    steps.push(("free one", Aim::FreeOne, free_one(&alone, Duration::ZERO)));
    steps.push(("free one, and keep it", Aim::FreeOne, free_one(&alone, KEPT)));
    steps.push(("renew", Aim::RenewAll, renew(std::slice::from_ref(&alone), false)));
    steps.push(("renew a share", Aim::Renew, (share::renew(&shared).call)(&keys, CLOCK)));
    let token = Draw { ms: 5, seq: 0 }.token().unwrap();
    steps.push(("downgrade", Aim::Downgrade, (share::downgrade(&shared, token).call)(&keys, CLOCK)));
    steps.push(("list", Aim::Other, (share::list(&shared.key, 0).call)(&keys, CLOCK)));
    let free = NodeCall::Free(alone.clone());
    let take = |letter| NodeCall::Take(NodeTake::new(&request("k", letter, Mode::Exclusive, false), 1, DEADLINE));
    steps.push(("free in a batch", Aim::Release, NodeCall::together(std::iter::once(&free))));
    steps.push(("take in a batch", Aim::TakeOrDoubt, NodeCall::together(std::iter::once(&take("a")))));
    steps.push(("free and take in a batch", Aim::Other, NodeCall::together([free, take("d")].iter())));
    steps.push(("vote", Aim::Take, vote(&keys, &request("k", "a", Mode::Exclusive, false), DEADLINE, token)));
    let list = MemberList::from_text("2|60000|a,b,c");
    steps.push(("remember", Aim::Other, remember(list.as_ref(), LEASE)));
    steps.push(("vouch", Aim::Other, vouch()));
    steps.push(("holder", Aim::Other, (read_holder(&alone.key).call)(&keys, CLOCK)));
    steps.push(("blocked", Aim::Other, (read_blocked(&alone.key).call)(&keys, CLOCK)));
    let waits_for = Blocked::new(alone.owner, token, 1, alone.key.clone());
    steps.push(("set blocked", Aim::Other, (write_blocked(&alone.key, Some(&waits_for)).call)(&keys, CLOCK)));
    steps.push(("clear blocked", Aim::Other, (write_blocked(&alone.key, None).call)(&keys, CLOCK)));
    steps.push(("note a run", Aim::Other, (note_run(&alone, JobRun::new(LEASE, true)).call)(&keys, CLOCK)));
    steps.push(("last run", Aim::Other, (read_job_of(&alone.key).call)(&keys, CLOCK)));
    let version = JobVersion::new("v42").unwrap();
    let mark = write_done(&alone, &version, LEASE);
    steps.push(("mark what is done", Aim::Mark, (mark.call)(&keys, CLOCK)));
    steps.push(("what is done", Aim::Other, (read_done(&alone.key, &version).call)(&keys, CLOCK)));
    steps.push(("forget what is done", Aim::Other, (remove_done(&alone.key, &version).call)(&keys, CLOCK)));
    steps
}
