//! The messages that processes receive: grants and calls to ask again, sent by `tell.lua`, and locks that
//! operators take away.

use std::time::Duration;

use crate::protocol::clock::{Draw, token_of_phase};
use lock_store::contract::backend::{Claim, Grant};
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::OwnerId;

/// Reads `owner|token|grant_ttl|stamp|key`.
pub(crate) fn granted(message: &[u8]) -> Option<Grant> {
    let mut parts = std::str::from_utf8(message).ok()?.splitn(5, '|');
    let owner = OwnerId::from_hex(parts.next()?)?;
    let token = parts.next()?;
    let alone = Draw::read(token.as_bytes()).and_then(Draw::token).map(|token| (token, Mode::Exclusive));
    // That of a phase has one number more. Its units are the claim's own affair.
    let (token, mode) = alone.or_else(|| Some((token_of_phase(token.as_bytes())?, Mode::READ)))?;
    let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
    let stamp = parts.next()?.parse().ok()?;
    let key = LockKey::new(parts.next()?).ok()?;
    let mut claim = Claim::new(key, ttl).with_mode(mode);
    claim.owner = owner;
    Some(Grant::new(claim, token, stamp))
}

/// Reads `w|owner|key`: somebody waits for a lock that this owner shares.
pub(crate) fn wanted(message: &[u8]) -> Option<OwnerId> {
    let (owner, _key) = std::str::from_utf8(message).ok()?.strip_prefix("w|")?.split_once('|')?;
    OwnerId::from_hex(owner)
}

/// Reads `owner|again`: a claim in the queue that must ask again.
pub(crate) fn called(message: &[u8]) -> Option<OwnerId> {
    OwnerId::from_hex(std::str::from_utf8(message).ok()?.strip_suffix("|again")?)
}

/// Writes the message that an operator takes a lock away.
#[cfg(any(test, feature = "inspect"))]
#[must_use]
pub fn revoking(owner: OwnerId, actor: &str, reason: &str) -> String {
    format!("{}|{}|{reason}", owner.to_hex(), actor.replace('|', "_"))
}

/// Reads such a message: whose lock it is, who takes it away, and why.
pub(crate) fn revocation(message: &[u8]) -> Option<(OwnerId, &str, &str)> {
    let (owner, rest) = std::str::from_utf8(message).ok()?.split_once('|')?;
    let (actor, reason) = rest.split_once('|')?;
    Some((OwnerId::from_hex(owner)?, actor, reason))
}
