//! What a claim asks of the server, as `calls.lua` reads it: keys, the letter of a step, arguments.

use redis::{Arg, Cmd};

use crate::backend::{AcquireRequest, Release, Ticket};
use crate::fencing::FencingToken;
use crate::redis::keys::{INBOX, Keys};
use crate::redis::value;

/// How many bytes a call commonly takes, but for the name of its lock.
const ROOM: usize = 256;

/// How many keys a call begins with.
const KEYS: usize = 4;

/// One call.
pub(super) struct Call {
    words: Cmd,
    /// What a call must know that takes a lock.
    pub(super) taking: Option<Taking>,
}

/// Under which conditions a lock is taken.
#[derive(Clone, Copy)]
pub(super) struct Taking {
    /// The token must exceed it.
    pub(super) floor: FencingToken,
    /// It is executed no later than this, server time in µs.
    pub(super) deadline: u64,
}

impl Call {
    /// Takes a lock, as in `acquire.lua`; ends another claim before, as in `requeue.lua`, if there is one.
    /// It is executed no later than `deadline`, which is server time in µs.
    pub(super) fn acquire(keys: &Keys<'_>, request: &AcquireRequest, before: Option<&Release>, deadline: u64) -> Self {
        let claim = &request.claim;
        let mut words = Cmd::with_capacity(13, 4 * keys.lock.len() + ROOM);
        words.arg(&keys.all()).arg(match before {
            Some(_) => "r",
            None if request.block > 1 => "b",
            None => "a",
        });
        words.arg(claim.owner.to_hex()).arg(value::millis(claim.ttl)).arg(deadline);
        words.arg(value::tail(claim.ttl, &request.info));
        words.arg(request.ticket.as_ref().map_or_else(String::new, ticket));
        if before.is_some() || request.block > 1 {
            words.arg(request.block.max(1));
        }
        if let Some(release) = before {
            words.arg(release.claim.owner.to_hex()).arg(release.last_token.map_or(0, FencingToken::get));
        }
        Self { words, taking: Some(Taking { floor: request.floor, deadline }) }
    }

    /// Frees a lock, as in `release.lua`.
    pub(super) fn release(keys: &Keys<'_>, release: &Release) -> Self {
        let mut words = Cmd::with_capacity(8, 4 * keys.lock.len() + ROOM);
        let plain = release.last_token.is_none() && release.keep_for.is_zero();
        words.arg(&keys.all()).arg(if plain { "f" } else { "g" }).arg(release.claim.owner.to_hex());
        if !plain {
            let keep = if release.keep_for.is_zero() { 0 } else { value::millis(release.keep_for) };
            words.arg(release.last_token.map_or(0, FencingToken::get)).arg(keep);
        }
        Self { words, taking: None }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.words().take(KEYS)
    }

    /// Returns the letter and the arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.words().skip(KEYS)
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.args_iter().filter_map(|word| if let Arg::Simple(word) = word { Some(word) } else { None })
    }
}

/// Writes a ticket as `stamp|grant_ttl|inbox`.
fn ticket(ticket: &Ticket) -> String {
    format!("{}|{}|{INBOX}{}", ticket.stamp, value::millis(ticket.grant_ttl), ticket.inbox)
}
