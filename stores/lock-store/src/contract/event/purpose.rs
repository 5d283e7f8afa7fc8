//! The purpose of a lock.

use std::time::Duration;

/// The purpose of a lock, beyond excluding other callers.
///
/// ```
/// use lock_core::{LockEvent, LockEventKind, LockManager, Purpose};
///
/// LockManager::in_memory().observe(|event: &LockEvent<'_>| {
///     if let (Purpose::Leadership, LockEventKind::Acquired { token, .. }) = (event.purpose, &event.kind) {
///         println!("this process leads {}, term {token}", event.key);
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// No further purpose.
    #[default]
    Lock,
    /// One of several stripes.
    Stripe {
        /// The number of stripes.
        of: u32,
    },
    /// A role that one process has. A waiter is a candidate, and the holder leads.
    Leadership,
    /// A job that one of many instances runs. An acquire that ends [busy](crate::LockEventKind::Busy) skips the run.
    Job {
        /// Its period. `None` for a job without one, which runs once.
        every: Option<Duration>,
    },
    /// A lease that outlives its process. It ends as released when it is handed over, and stays taken.
    Lease,
}
