//! Who is measured: all do the same work through the same loop.

mod local;
mod ours;
mod raw;
mod rslock;

use std::future::Future;

use serde::{Deserialize, Serialize};

use crate::Result;

pub(crate) use local::Local;
pub(crate) use ours::Ours;
pub(crate) use raw::Raw;
pub(crate) use rslock::Rslock;

/// The lease that every contestant asks for, ms.
pub(crate) const TTL_MS: u64 = 30_000;

/// Something that takes and gives back locks. Clones share connections.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    /// The proof of a lock that is held.
    type Held: Send + 'static;

    /// Takes a lock, however long that takes. Returns its fencing token, 0 if it has none.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<(Self::Held, u64)>> + Send;

    /// Gives a lock back.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// Names a contestant and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// redis-rs alone: `SET NX PX`, and a script that compares and deletes.
    Raw {
        /// Whether the connection sends without delay, which redis-rs 1.x does only if told to.
        nodelay: bool,
    },
    /// The crate rslock.
    Rslock {
        /// The longest pause between two tries; its default if `None`.
        retry_ms: Option<u64>,
    },
    /// A mutex of this process: no store at all.
    Local,
    /// This library, with all that a user gets by default.
    Ours {
        /// Whether whoever releases goes on before the answer is there.
        background: bool,
    },
}
