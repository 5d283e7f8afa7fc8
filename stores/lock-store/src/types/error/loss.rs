//! The reasons for the loss of a lock.

use std::fmt;

/// The reason why a held lock was lost.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let guard = locks.lock("report").await?;
/// # let rest = async {};
/// # tokio::pin!(rest);
/// tokio::select! {
///     reason = guard.lost() => println!("stopped: {reason}"), // also a metric label: reason.as_str()
///     () = &mut rest => {}
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease expired before it could be renewed.
    Expired,
    /// The key does not exist any more, or another client has it: it was deleted, flushed, evicted or overwritten.
    Stolen,
    /// The store could not be reached until the lease expired.
    Unreachable,
    /// The server that had the lock was replaced by one that does not know the lock, or restarted without its data. In
    /// a quorum, this happened to so many members that the others are not a majority.
    Failover,
    /// The hold reached its `max_hold`.
    MaxHold,
    /// An operator took the lock away.
    Revoked,
    /// The manager was shut down while the lock was held, and freed it.
    ShutDown,
}

impl LossReason {
    /// Returns the reason as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Stolen => "stolen",
            Self::Unreachable => "unreachable",
            Self::Failover => "failover",
            Self::MaxHold => "max_hold",
            Self::Revoked => "revoked",
            Self::ShutDown => "shut_down",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out before it was renewed",
            Self::Stolen => "its key was deleted or taken by another client",
            Self::Unreachable => "the store could not be reached until its lease ran out",
            Self::Failover => "another server took over without it",
            Self::MaxHold => "it was held for its max_hold",
            Self::Revoked => "it was revoked",
            Self::ShutDown => "its manager was shut down",
        })
    }
}
