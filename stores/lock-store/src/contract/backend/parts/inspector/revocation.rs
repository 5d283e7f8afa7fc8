//! An operator takes a lock away.

use crate::types::owner::OwnerId;

/// A request to take a lock away: the holder, the operator and the reason. Part of
/// [`Inspector::revoke`](crate::Inspector::revoke).
///
/// ```
/// use lock_core::OwnerId;
/// use lock_store::{Revocation, RevokeFrom};
///
/// let revocation = Revocation::new(RevokeFrom::Owner(OwnerId::random()), "ana", "its host is gone");
/// assert_eq!(revocation.actor, "ana");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Revocation {
    /// The only holder from which the lock is taken.
    pub from: RevokeFrom,
    /// The name of the operator who asks for it.
    pub actor: String,
    /// The reason.
    pub reason: String,
}

/// The holder from which a lock is taken away. See the example of [`Revocation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeFrom {
    /// A holder of this library.
    Owner(OwnerId),
    /// A client of another library that wrote exactly this value. That client cannot be told.
    Foreign(Vec<u8>),
}

impl Revocation {
    /// Describes a revocation.
    #[must_use]
    pub fn new(from: RevokeFrom, actor: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { from, actor: actor.into(), reason: reason.into() }
    }
}
