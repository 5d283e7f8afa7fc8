//! The state of a wait while it lasts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::types::error::LockError;
use crate::types::key::{LockKey, LockLabel};
use crate::types::owner::Holder;
use crate::types::system::text::human;

/// The state of a wait that has lasted for a while: who holds the lock, and how much of the wait is left.
///
/// `Display` puts it into one line for people.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let guard = locks.lock("report").on_waiting(|wait| eprintln!("{wait}")).await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitProgress {
    /// The rendered key.
    pub key: LockKey,
    /// The family of locks.
    pub label: LockLabel,
    /// The function or source line that waits.
    pub site: &'static str,
    /// The name of the store.
    pub store: Arc<str>,
    /// How long the caller has waited.
    pub waited: Duration,
    /// How long it still waits at most. `None` if it waits without a limit.
    pub left: Option<Duration>,
    /// The holder. `None` if the lock has just become free, or if the store could not say.
    pub holder: Option<Holder>,
    /// How long the holder has had the lock. `None` if that is unknown, and for a shared lock.
    pub held_for: Option<Duration>,
    /// How many claims stand before this one in the store's queue. `None` if that is unknown: the store keeps no queue or
    /// cannot show it, or another caller of this process waits in the queue for both.
    pub before: Option<usize>,
    /// Why the store could not be asked. Then nothing is known about the holder.
    pub unknown: Option<LockError>,
}

impl WaitProgress {
    /// Describes a wait about whose lock nothing is known.
    #[must_use]
    pub fn new(key: LockKey, label: LockLabel, waited: Duration, left: Option<Duration>) -> Self {
        let (holder, held_for, before, unknown) = (None, None, None, None);
        Self { key, label, site: "", store: Arc::from(""), waited, left, holder, held_for, before, unknown }
    }
}

impl fmt::Display for WaitProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting for {} for {}: ", self.key, human(self.waited))?;
        match (&self.holder, &self.unknown) {
            (Some(holder), _) => {
                let held_for = self.held_for.map_or_else(String::new, |time| format!(" for {}", human(time)));
                write!(f, "held{held_for} by {holder}")?;
            }
            (None, Some(error)) => write!(f, "its holder is unknown, because {error}")?,
            (None, None) => f.write_str("it is free at this moment")?,
        }
        match self.before {
            Some(0) => f.write_str("; this claim is the next")?,
            Some(before) => write!(f, "; {before} before this claim")?,
            None => {}
        }
        match self.left {
            Some(left) => write!(f, "; gives up in {}", human(left)),
            None => f.write_str("; never gives up"),
        }
    }
}
