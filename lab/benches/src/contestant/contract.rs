//! The interface of every contestant.

use std::future::Future;

use crate::Result;
use crate::contestant::access::Access;

/// The lease that every contestant asks for, ms.
pub(crate) const TTL_MS: u64 = 30_000;

/// A library or a plain command that takes and releases locks. Clones share connections.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    /// The guard of a held lock.
    type Held: Send + 'static;

    /// Takes a lock, without a time limit. Returns its fencing token, or 0 if it has none.
    fn acquire(&self, key: &str, access: Access) -> impl Future<Output = Result<(Self::Held, u64)>> + Send;

    /// Returns the held part of the key, if the lock covers only a part.
    fn part(_held: &Self::Held) -> u32 {
        0
    }

    /// Releases a lock.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
