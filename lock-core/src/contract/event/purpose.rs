//! What a lock is for.

use std::time::Duration;

/// What a lock is for, beyond excluding others.
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
    /// Nothing more.
    #[default]
    Lock,
    /// One of several stripes.
    Stripe {
        /// How many there are.
        of: u32,
    },
    /// A role that one process has. Who waits is a candidate, and who holds it leads.
    Leadership,
    /// A job that one of many instances runs. An acquire that ends [busy](crate::LockEventKind::Busy) is skipped.
    Job {
        /// Its period. `None` for a job that runs once for a time.
        every: Option<Duration>,
    },
}
