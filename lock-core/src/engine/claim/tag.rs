//! How a process recognises a lease by the name of its holder.

use crate::engine::fnv::Fnv;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

/// The first half of the owner of every lease that a holder has at a key. The other half is random.
///
/// Any process can compute it from the name of the holder. It then reads the whole owner from the store, and acts as
/// that one grant and no other: a release that comes late never frees a later lease of the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTag([u8; 16]);

impl LeaseTag {
    /// Computes it: FNV-1a, 64 bits, of the key, the byte 0xff, which no text contains, and the name of the holder. Other
    /// processes compute the same, so it must never change.
    pub(crate) fn of(key: &LockKey, holder: &str) -> Self {
        let mut hash = Fnv::new();
        [key.as_str().as_bytes(), &[0xff], holder.as_bytes()].into_iter().for_each(|part| hash.add(part));
        let mut digits = [0; 16];
        digits.copy_from_slice(format!("{:016x}", hash.0).as_bytes());
        Self(digits)
    }

    /// Draws the owner of a new lease.
    pub(crate) fn draw(self) -> OwnerId {
        let mut digits = OwnerId::random().digits();
        digits[..16].copy_from_slice(&self.0);
        std::str::from_utf8(&digits).ok().and_then(OwnerId::from_hex).unwrap_or_else(OwnerId::random)
    }

    /// Returns whether an owner is a lease of this holder.
    pub(crate) fn is_of(self, owner: Option<OwnerId>) -> bool {
        owner.is_some_and(|owner| owner.digits()[..16] == self.0)
    }
}

#[cfg(test)]
mod tests;
