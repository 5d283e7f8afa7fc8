//! One lock at a time: a lock of this library, or of another one through its adapter.

use std::time::Duration;

use lock_core::{LockGuard, LockManager};

use crate::caller::adapter::Adapter;
use crate::caller::{Args, connect};

/// How long an acquire waits for a lock that is held for moments.
pub(super) const WAIT: Duration = Duration::from_secs(5);

/// Locks of this library, or of another one.
pub(super) enum Locks {
    Ours(LockManager),
    Theirs(Box<Adapter>),
}

/// A guard of this library, or the fact that the adapter holds a lock.
pub(super) enum Held {
    Ours(Box<LockGuard>),
    Theirs(Option<u64>),
}

impl Locks {
    /// Connects, or starts the named adapter.
    pub(super) fn of(args: &Args) -> Self {
        let adapter = args.text("adapter");
        if adapter.is_empty() {
            return Self::Ours(connect(args));
        }
        Self::Theirs(Box::new(Adapter::start(adapter, args.text("url"), args.text("ttl_ms"))))
    }

    /// Releases the connection or ends the adapter.
    pub(super) fn leave(self) {
        if let Self::Ours(locks) = self {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(locks.shutdown(Duration::from_secs(10)));
        }
    }

    pub(super) fn acquire(&mut self, key: &str, wait: Duration) -> Option<Held> {
        match self {
            Self::Ours(locks) => {
                locks.lock(key).with_wait(wait).acquire_blocking().ok().map(|guard| Held::Ours(Box::new(guard)))
            }
            Self::Theirs(adapter) => adapter.acquire(key, wait).map(Held::Theirs),
        }
    }

    pub(super) fn is_held(&mut self, held: &Held) -> bool {
        match (self, held) {
            (Self::Theirs(adapter), _) => adapter.is_held(),
            (_, Held::Ours(guard)) => guard.ensure_held().is_ok(),
            _ => false,
        }
    }

    pub(super) fn release(&mut self, held: Held) {
        match (self, held) {
            (Self::Theirs(adapter), _) => adapter.release(),
            (_, Held::Ours(guard)) => _ = guard.release_blocking(),
            _ => {}
        }
    }
}

impl Held {
    /// When a holder with this library would know by itself that its lease has ended.
    pub(super) fn deadline(&self, at: u64) -> Option<u64> {
        let Self::Ours(guard) = self else { return None };
        Some(at + u64::try_from(guard.remaining().as_nanos()).unwrap())
    }

    pub(super) fn token(&self) -> Option<u64> {
        match self {
            Self::Ours(guard) => Some(guard.token().get()),
            Self::Theirs(token) => *token,
        }
    }
}
