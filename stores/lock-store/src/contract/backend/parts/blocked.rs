//! A note that a holder publishes while it waits for another lock.

use std::future::Future;

use crate::types::error::Result;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::owner::OwnerId;

/// A note that the task that holds one lock waits for another. The store keeps it beside the held lock for three
/// seconds.
///
/// While the task waits, it writes the note again about every second, each time with a greater [`stamp`](Self::stamp).
///
/// ```
/// use lock_core::{FencingToken, LockKey, OwnerId};
/// use lock_store::Blocked;
///
/// let waits = Blocked::new(OwnerId::random(), FencingToken::new(1), 1, LockKey::new("stock:42")?);
/// assert_eq!(waits.waits_for.as_str(), "stock:42");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The claim that has the lock beside which this note is kept.
    pub owner: OwnerId,
    /// The token of its holder. It distinguishes the successive holders of one claim.
    pub token: FencingToken,
    /// How often the note was written.
    pub stamp: u64,
    /// The lock that the task waits for.
    pub waits_for: LockKey,
}

impl Blocked {
    /// How long the note is kept.
    pub const KEPT: std::time::Duration = std::time::Duration::from_secs(3);

    /// Describes a holder that waits.
    #[must_use]
    pub fn new(owner: OwnerId, token: FencingToken, stamp: u64, waits_for: LockKey) -> Self {
        Self { owner, token, stamp, waits_for }
    }
}

/// The part of a store that keeps, beside each held lock, which lock its holder waits for. Deadlocks across processes
/// are found with it. Without it, they are not found.
///
/// See the example of [`LockBackend`](crate::LockBackend).
pub trait BlockedNotes: Send + Sync {
    /// Keeps beside a lock what its holder waits for, for [`Blocked::KEPT`]. `None` removes the note.
    fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> impl Future<Output = Result<()>> + Send;

    /// Returns which lock the holder of a lock waits for, if it published that recently.
    fn blocked(&self, key: &LockKey) -> impl Future<Output = Result<Option<Blocked>>> + Send;
}
