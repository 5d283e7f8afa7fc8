//! The contestants: all do the same work in the same loop.

mod access;
mod contract;
mod local;
mod ours;
mod raw;
mod rslock;
mod store;

use serde::{Deserialize, Serialize};

pub(crate) use access::{Access, Wants};
pub(crate) use contract::{Contestant, TTL_MS};
pub(crate) use local::Local;
pub(crate) use ours::Ours;
pub(crate) use raw::Raw;
pub(crate) use rslock::Rslock;
pub(crate) use store::Store;

/// Names a contestant and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// redis-rs alone: `SET NX PX`, and a script that compares and deletes.
    Raw {
        /// Whether the connection sends without delay, which redis-rs 1.x does only on request.
        nodelay: bool,
    },
    /// The crate rslock.
    Rslock {
        /// The longest pause between two tries; its default if `None`.
        retry_ms: Option<u64>,
    },
    /// A mutex of this process: no store at all.
    Local,
    /// This library, with all defaults of a user.
    Ours {
        /// Whether a release returns before the answer of the store.
        background: bool,
    },
    /// The same, over another kind of store.
    Over(Store),
    /// Somebody else's lock, by its place among the adapters.
    Peer {
        number: usize,
        /// Whether it is compiled while it runs, and is slow at first.
        warms_up: bool,
    },
}
