//! How a claim shares its key with other claims.

use std::time::Duration;

use crate::types::error::{LockError, Result};
use crate::types::owner::Holder;

/// The most permits that a semaphore can have.
pub const MAX_PERMITS: u32 = 1_000_000;

/// How a claim shares its key with other claims.
///
/// A sharing claim enters only if the units of all claims, with its own, do not exceed its limit. From the first
/// sharing claim until the last one has gone, the key is in a *phase*. A phase has one fencing token. Earlier claims
/// have smaller tokens, later claims have greater ones.
///
/// Limits travel with the claims, and the store keeps none. Ask with another number to resize a semaphore. If the limit
/// is lowered, holders above it keep their units. While callers disagree, the greatest limit is never exceeded.
///
/// ```
/// use lock_core::Mode;
///
/// assert_eq!(Mode::READ.as_str(), "read");
/// assert_eq!(Mode::permits(3, 16)?.to_string(), "3 of 16 permits");
/// assert!(Mode::permits(3, 2).is_err());
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Exclusive: a lock, or the write side of a read-write lock.
    #[default]
    Exclusive,
    /// Shared with other claims.
    Shared {
        /// The units that this claim takes.
        units: u32,
        /// The most units that all claims may take together, as this claim sees it.
        limit: u32,
    },
}

impl Mode {
    /// The read side of a read-write lock. All readers can hold it together.
    pub const READ: Self = Self::Shared { units: 1, limit: Self::READ_LIMIT };

    /// Returns the error of a store that has only exclusive locks.
    #[doc(hidden)]
    #[must_use]
    pub fn unknown_to_store(self) -> LockError {
        LockError::misconfigured(format!(
            "this store has exclusive locks only, and no {}; use one Redis server, Sentinel, a cluster or memory, \
             or take an exclusive lock",
            if self == Self::READ { "readers" } else { "permits" },
        ))
    }

    /// Returns the error of a wait that ended without a grant.
    #[doc(hidden)]
    #[must_use]
    pub fn timed_out(self, waited: Duration, holder: Option<Holder>) -> LockError {
        if !self.is_shared() || self == Self::READ {
            return LockError::timeout(waited, holder);
        }
        LockError::no_permits(&self, waited, holder)
    }

    /// Takes some of the permits of a semaphore.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if `limit` is zero or exceeds
    /// [`MAX_PERMITS`], or if `units` is zero or exceeds `limit`.
    pub fn permits(units: u32, limit: u32) -> Result<Self> {
        let refuse = |text: String| Err(LockError::misconfigured(text));
        match (units, limit) {
            (_, 0) => refuse("a semaphore without permits lets nobody in; give it at least 1".to_owned()),
            (_, limit) if limit > MAX_PERMITS => {
                refuse(format!("{limit} permits are over the limit of {MAX_PERMITS}; count in greater units"))
            }
            (0, _) => refuse("a weight of 0 would take no permit; use at least 1".to_owned()),
            (units, limit) if units > limit => refuse(format!(
                "a weight of {units} never fits into {limit} permits; lower the weight, or raise the permits",
            )),
            _ => Ok(Self::Shared { units, limit }),
        }
    }

    /// Returns the mode as a metric label: `write`, `read` or `permit`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "write",
            Self::READ => "read",
            Self::Shared { .. } => "permit",
        }
    }

    /// Returns whether claims of this mode share the key with other claims.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Returns whether a grant of this mode permits everything that a grant of the other mode would.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) => true,
            (Self::Shared { .. }, Self::Exclusive) => false,
            (Self::Shared { units, limit }, Self::Shared { units: wanted, limit: of }) => {
                units >= wanted && (limit == of || limit != Self::READ_LIMIT && of != Self::READ_LIMIT)
            }
        }
    }

    const READ_LIMIT: u32 = 1 << 31;
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared { units, limit } if *self != Self::READ => write!(f, "{units} of {limit} permits"),
            mode => f.write_str(mode.as_str()),
        }
    }
}
