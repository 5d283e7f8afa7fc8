//! That an operator takes a lock away.

use crate::types::owner::OwnerId;

/// From whom an operator takes a lock, who that is, and why. Part of [`Inspector::revoke`](crate::Inspector::revoke).
///
/// ```
/// use lock_core::{OwnerId, Revocation, RevokeFrom};
///
/// let revocation = Revocation::new(RevokeFrom::Owner(OwnerId::random()), "ana", "its host is gone");
/// assert_eq!(revocation.actor, "ana");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Revocation {
    /// From whom, and from nobody else.
    pub from: RevokeFrom,
    /// Who asks for it.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// From whom a lock is taken away. See the example of [`Revocation`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevokeFrom {
    /// One of our holders.
    Owner(OwnerId),
    /// A client of another library that wrote exactly this value. It cannot be told.
    Foreign(Vec<u8>),
}

impl Revocation {
    /// Describes it.
    #[must_use]
    pub fn new(from: RevokeFrom, actor: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { from, actor: actor.into(), reason: reason.into() }
    }
}
