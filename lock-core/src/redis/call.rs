//! What a claim asks of the server, as `calls.lua` reads it: keys, the letter of a step, arguments.

use redis::Cmd;

use crate::backend::{AcquireRequest, Release, Ticket};
use crate::fencing::FencingToken;
use crate::redis::keys::{INBOX, Keys};
use crate::redis::value;

/// How many bytes a call commonly takes, but for the name of its lock.
const ROOM: usize = 256;

/// Takes a lock, as in `acquire.lua`; ends another claim before, as in `requeue.lua`, if there is one.
/// It is executed no later than `deadline`, which is server time in µs.
pub(super) fn acquire(keys: &Keys<'_>, request: &AcquireRequest, before: Option<&Release>, deadline: u64) -> Cmd {
    let claim = &request.claim;
    let mut call = Cmd::with_capacity(14, 4 * keys.lock.len() + ROOM);
    call.arg(&keys.all()).arg(if before.is_some() { "r" } else { "a" });
    call.arg(claim.owner.to_hex()).arg(value::millis(claim.ttl)).arg(deadline).arg(request.floor.get());
    call.arg(request.block.max(1)).arg(value::tail(claim.ttl, &request.info));
    call.arg(request.ticket.as_ref().map_or_else(String::new, ticket));
    if let Some(release) = before {
        call.arg(release.claim.owner.to_hex()).arg(release.last_token.map_or(0, FencingToken::get));
    }
    call
}

/// Writes a ticket as `stamp|grant_ttl|inbox`.
fn ticket(ticket: &Ticket) -> String {
    format!("{}|{}|{INBOX}{}", ticket.stamp, value::millis(ticket.grant_ttl), ticket.inbox)
}

/// Frees a lock, as in `release.lua`.
pub(super) fn release(keys: &Keys<'_>, release: &Release) -> Cmd {
    let keep = if release.keep_for.is_zero() { 0 } else { value::millis(release.keep_for) };
    let mut call = Cmd::with_capacity(8, 4 * keys.lock.len() + ROOM);
    call.arg(&keys.all()).arg("f");
    call.arg(release.claim.owner.to_hex()).arg(release.last_token.map_or(0, FencingToken::get)).arg(keep);
    call
}
