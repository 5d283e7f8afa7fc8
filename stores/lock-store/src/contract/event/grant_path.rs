//! How a lock was granted.

/// How a lock was granted.
///
/// ```
/// use lock_core::{GrantPath, LockEvent, LockEventKind, LockManager};
///
/// LockManager::in_memory().observe(|event: &LockEvent<'_>| {
///     if let LockEventKind::Acquired { path: GrantPath::Handoff, .. } = event.kind {
///         println!("{} passed on without the store", event.key);
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrantPath {
    /// The lock was free at the first attempt.
    Uncontended,
    /// The previous holder's release assigned the lock to this process.
    Granted,
    /// A later attempt found the lock free.
    Polled,
    /// A holder in this process passed the lock on without the store.
    Handoff,
    /// An enclosing scope of the same task already held it.
    Reentrant,
    /// Another reader of this process held it, and this reader joined without the store.
    Shared,
}

impl GrantPath {
    /// Returns the path as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Granted => "granted",
            Self::Polled => "polled",
            Self::Handoff => "handoff",
            Self::Reentrant => "reentrant",
            Self::Shared => "shared",
        }
    }
}
