//! How a claim shares its key with others.

use std::time::Duration;

use crate::types::error::{LockError, Result};
use crate::types::owner::Holder;

/// The most permits that a semaphore can have.
pub const MAX_PERMITS: u32 = 1_000_000;

/// How a claim shares its key with others.
///
/// Claims that share are let in while the units of all of them do not exceed the limit of each that enters. From
/// the first of them until the last has gone, the key is in a *phase*, which has one fencing token: claims before it
/// have smaller ones, claims after it greater ones.
///
/// Limits travel with the claims, and the store keeps none: a semaphore is resized by asking with another number.
/// Holders above a lowered limit keep their units, and while callers disagree the greatest limit is never exceeded.
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
#[non_exhaustive]
pub enum Mode {
    /// The key for itself: a lock, and the write side of a read-write lock.
    #[default]
    Exclusive,
    /// Beside others that share.
    Shared {
        /// How much this claim takes.
        units: u32,
        /// How much all claims may take together, in the eyes of this one.
        limit: u32,
    },
}

impl Mode {
    /// The read side of a read-write lock: beside all other readers.
    pub const READ: Self = Self::Shared { units: 1, limit: Self::READ_LIMIT };

    /// The error of a store that knows only exclusive locks.
    pub(crate) fn unknown_to_store(self) -> LockError {
        LockError::misconfigured(format!(
            "this store gives exclusive locks only and no {}; share on one Redis server, through Sentinel, in a cluster or in \
             memory, but not in a quorum, or take an exclusive lock",
            if self == Self::READ { "readers" } else { "permits" },
        ))
    }

    /// The error of a wait that ended without a grant.
    pub(crate) fn timed_out(self, waited: Duration, holder: Option<Holder>) -> LockError {
        if !self.is_shared() || self == Self::READ {
            return LockError::timeout(waited, holder);
        }
        LockError::no_permits(&self, waited, holder)
    }

    /// Takes some of the permits of a semaphore.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if there are no permits or more than
    /// [`MAX_PERMITS`], or if `units` is zero or more than there are.
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

    /// Returns whether claims of this mode share the key with others.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Returns whether a grant of this mode allows all that a grant of another would.
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
