//! The parts that several tests need.

use lock_core::store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_core::{Holder, LockBackend, LockError, LockKey, LockManager, MemoryStore, Result};

/// A manager of its own for one test.
pub(crate) fn manager() -> LockManager {
    LockManager::in_memory()
}

/// A manager on the virtual time of the current runtime, and its store.
pub(crate) fn paused() -> (LockManager, MemoryStore) {
    let store = MemoryStore::new();
    (LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap(), store)
}

/// Compiles for values that may cross threads.
pub(crate) fn assert_send<T: Send>(_: &T) {}

/// A store that refuses every connection.
#[derive(Debug)]
pub(crate) struct Down;

fn refused() -> LockError {
    LockError::not_executed("connection refused")
}

impl LockBackend for Down {
    fn kind(&self) -> &'static str {
        "down"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::polled()
    }

    async fn drive(&self, _: Inbox) -> LockError {
        std::future::pending().await
    }

    async fn try_acquire(&self, _: &AcquireRequest) -> Result<Attempt> {
        Err(refused())
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        one_lane.iter().map(|_| Err(refused())).collect()
    }

    async fn release(&self, _: &Release) -> Result<Freed> {
        Err(refused())
    }

    async fn withdraw(&self, _: &Claim) -> Result<Freed> {
        Err(refused())
    }

    async fn holder(&self, _: &LockKey) -> Result<Option<Holder>> {
        Err(refused())
    }
}
