//! The interface of every contestant.

use std::future::Future;

use crate::Result;
use crate::contestant::access::Access;

/// The lease that every contestant asks for, ms.
pub(crate) const TTL_MS: u64 = 30_000;

/// Something that takes and releases locks. Clones share connections.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    /// The proof of a lock that is held.
    type Held: Send + 'static;

    /// Takes a lock, however long that takes. Returns its fencing token, 0 if it has none.
    fn acquire(&self, key: &str, access: Access) -> impl Future<Output = Result<(Self::Held, u64)>> + Send;

    /// Returns which part of the key is held, if that is not all of it.
    fn part(_held: &Self::Held) -> u32 {
        0
    }

    /// Releases a lock.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}
