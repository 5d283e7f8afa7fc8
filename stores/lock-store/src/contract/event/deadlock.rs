//! Tasks that wait for each other.

use std::fmt;

use crate::types::key::LockKey;
use crate::types::owner::HolderInfo;

/// A cycle of tasks. Each task waits for a lock that the next task holds.
///
/// A task is only known to hold the locks of `run`, of annotated functions and of
/// `LockGuard::scope`. Each member waits for such a lock.
///
/// ```
/// use lock_core::{LockEvent, LockObserver, Notice};
///
/// struct Deadlocks;
///
/// impl LockObserver for Deadlocks {
///     fn on_event(&self, _: &LockEvent<'_>) {}
///
///     fn on_notice(&self, notice: &Notice<'_>) {
///         if let Notice::Deadlocked { deadlock } = notice {
///             eprintln!("{deadlock}"); // names every lock and its holder
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The locks, from the one that this task waits for to the one that it holds. The holder of each waits for the
    /// next, and this task waits for the first.
    pub cycle: Vec<DeadlockMember>,
    /// Whether this task gives way. Its acquire then fails with [`WouldDeadlock`](crate::LockErrorKind::WouldDeadlock),
    /// so that the other tasks continue.
    pub victim: bool,
}

/// One lock of a cycle. See the example of [`Deadlock`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockMember {
    /// The lock.
    pub key: LockKey,
    /// The holder of the lock.
    pub holder: Option<HolderInfo>,
}

impl Deadlock {
    #[doc(hidden)]
    #[must_use]
    pub fn new(cycle: Vec<DeadlockMember>, victim: bool) -> Self {
        Self { cycle, victim }
    }
}

impl DeadlockMember {
    #[doc(hidden)]
    #[must_use]
    pub fn new(key: LockKey, holder: Option<HolderInfo>) -> Self {
        Self { key, holder }
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tasks wait for each other: this one waits for ")?;
        for (place, DeadlockMember { key, holder }) in self.cycle.iter().enumerate() {
            if place > 0 {
                f.write_str(", who waits for ")?;
            }
            match holder {
                _ if place + 1 == self.cycle.len() => write!(f, "{:?}, which this task holds", key.as_str())?,
                Some(holder) => write!(f, "{:?}, held by {holder}", key.as_str())?,
                None => write!(f, "{:?}, held by another", key.as_str())?,
            }
        }
        Ok(())
    }
}
