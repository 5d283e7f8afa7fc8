//! What a holder publishes while it waits for another lock.

use std::future::Future;

use crate::types::error::Result;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::owner::OwnerId;

/// The task that holds one lock waits for another. Kept beside the lock that it holds, for three seconds.
///
/// Written again about every second, each time with a greater [`stamp`](Self::stamp), for as long as the task waits.
///
/// ```
/// use lock_core::{Blocked, FencingToken, LockKey, OwnerId};
///
/// let waits = Blocked::new(OwnerId::random(), FencingToken::new(1), 1, LockKey::new("stock:42")?);
/// assert_eq!(waits.waits_for.as_str(), "stock:42");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocked {
    /// The claim that holds the lock beside which this is kept.
    pub owner: OwnerId,
    /// The token of its holder, which tells the successive holders of one claim apart.
    pub token: FencingToken,
    /// How often it was written.
    pub stamp: u64,
    /// What the task waits for.
    pub waits_for: LockKey,
}

impl Blocked {
    /// How long it is kept.
    pub const KEPT: std::time::Duration = std::time::Duration::from_secs(3);

    /// Describes a holder that waits.
    #[must_use]
    pub fn new(owner: OwnerId, token: FencingToken, stamp: u64, waits_for: LockKey) -> Self {
        Self { owner, token, stamp, waits_for }
    }
}

/// The part of a store that keeps what holders wait for, beside the locks that they hold: deadlocks across processes are
/// found from it. Without it none are.
///
/// See the example of [`LockBackend`](crate::LockBackend).
pub trait BlockedNotes: Send + Sync {
    /// Keeps beside a lock what its holder waits for, for [`Blocked::KEPT`]; `None` removes it.
    fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> impl Future<Output = Result<()>> + Send;

    /// Returns what the holder of a lock waits for, if it has said so lately.
    fn blocked(&self, key: &LockKey) -> impl Future<Output = Result<Option<Blocked>>> + Send;
}
