//! The contestants. All do the same work in the same loop.

mod access;
mod contract;
mod crates;
mod ours;
mod raw;
mod store;

use serde::{Deserialize, Serialize};

pub(crate) use access::{Access, Wants};
pub(crate) use contract::{Contestant, TTL_MS};
pub(crate) use crates::{Distkit, Local, Rslock};
pub(crate) use ours::Ours;
pub(crate) use raw::Raw;
pub(crate) use store::Store;

/// Names a contestant and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// redis-rs alone: `SET NX PX`, and a script that compares and deletes.
    Raw {
        /// Whether the connection sets TCP_NODELAY, which redis-rs 1.x does only on request.
        nodelay: bool,
    },
    /// The crate rslock.
    Rslock {
        /// The longest pause between two retries; the default of rslock if `None`.
        retry_ms: Option<u64>,
    },
    /// The locks of the crate distkit with their defaults.
    Distkit {
        /// Whether they are read-write locks instead of mutexes.
        reads: bool,
        /// How many owners the tasks of a process have in turn.
        owners: u32,
    },
    /// A mutex in this process, without a store.
    Local,
    /// This library with its default settings.
    Ours {
        /// Whether a release returns before the store has answered.
        background: bool,
    },
    /// This library over another kind of store.
    Over(Store),
    /// A lock of another library, by its number among the adapters.
    Peer {
        number: usize,
        /// Whether its language is compiled at run time, and therefore slow at first.
        warms_up: bool,
    },
}
