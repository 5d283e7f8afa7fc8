//! The message by which a walk of `queue.lua` tells a process of its grant.

use std::time::Duration;

use crate::backend::{Claim, Grant};
use crate::key::LockKey;
use crate::owner::OwnerId;
use crate::redis::clock::Draw;

/// Reads `owner|token|grant_ttl|stamp|key`.
pub(crate) fn granted(message: &[u8]) -> Option<Grant> {
    let mut parts = std::str::from_utf8(message).ok()?.splitn(5, '|');
    let owner = OwnerId::from_hex(parts.next()?)?;
    let token = Draw::read(parts.next()?.as_bytes())?.token()?;
    let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
    let stamp = parts.next()?.parse().ok()?;
    let key = LockKey::new(parts.next()?).ok()?;
    Some(Grant::new(Claim { key, owner, ttl }, token, stamp))
}
