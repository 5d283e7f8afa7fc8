//! A lease as text: in the store beside its owner, and for another process.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use crate::api::lease::Lease;
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::MAX_TTL;
use lock_store::types::owner::{LEASE, OwnerId};

/// The longest name of a holder, in bytes.
pub const MAX_HOLDER: usize = 64;

/// How much of a call site every store keeps, in bytes.
const MAX_SITE: usize = 160;

/// Checks the name of a holder, and says what is wrong with it.
#[doc(hidden)]
pub fn check_holder(name: &str) -> std::result::Result<(), String> {
    if name.is_empty() || name.len() > MAX_HOLDER {
        return Err(format!(
            "name the holder of the lease in 1 to {MAX_HOLDER} bytes, for example by the number of a CI job"
        ));
    }
    if name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '|') {
        return Err("the name of a holder has no spaces, no control characters and no |".to_owned());
    }
    Ok(())
}

/// Describes a holder and its reason in the place of a call site: `lease ci-4711: release 42`.
pub(super) fn site(holder: &str, reason: &str) -> String {
    let mut site = format!("{LEASE}{holder}");
    let reason = reason.trim();
    if !reason.is_empty() {
        site.push_str(": ");
        site.extend(reason.chars().map(|c| if c.is_control() || c == '|' { ' ' } else { c }));
    }
    if site.len() > MAX_SITE {
        let ellipsis = '…';
        site.truncate((0..=MAX_SITE - ellipsis.len_utf8()).rev().find(|at| site.is_char_boundary(*at)).unwrap_or(0));
        site.push(ellipsis);
    }
    site
}

/// Writes the lease as one line for another process: it proves ownership.
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, holder, owner, token, ttl, expires_at } = self;
        let expires = expires_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let token = token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        write!(f, "lease1 {} {token} {} {expires} {holder} {key}", owner.to_hex(), ttl.as_millis())
    }
}

impl FromStr for Lease {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let mut parts = text.strip_prefix("lease1 ")?.splitn(6, ' ');
            let owner = OwnerId::from_hex(parts.next()?)?;
            let token = Some(parts.next()?).filter(|token| *token != "-").map(str::parse).transpose().ok()?;
            let mut millis = || Some(Duration::from_millis(parts.next()?.parse().ok()?));
            let (ttl, expires) = (millis().filter(|ttl| *ttl <= MAX_TTL)?, millis()?);
            let holder = parts.next().filter(|holder| check_holder(holder).is_ok())?.to_owned();
            let key = LockKey::new(parts.next()?).ok()?;
            Some(Self { key, holder, owner, token, ttl, expires_at: UNIX_EPOCH.checked_add(expires)? })
        };
        // The text proves ownership, so no message repeats it.
        read().ok_or_else(|| LockError::misconfigured("this text is not a lease; pass the text that Display wrote"))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Lease {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Lease {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
