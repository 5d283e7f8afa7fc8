//! Locks for the tests of applications. The crate `lock-testing` has the tools for the authors of stores.

use std::ops::Deref;
use std::sync::Arc;

use crate::api::manager::LockManager;
use crate::memory::MemoryStore;
use lock_store::contract::backend::{DynBackend, Inbox};
use lock_store::types::naming::IntoLockKey;

/// A manager for one test, with its own store that can be made to fail. Made by [`LockManager::for_tests`].
///
/// See the example of [`LockManager::for_tests`].
#[derive(Clone, Debug)]
pub struct TestLocks {
    locks: LockManager,
    store: MemoryStore,
}

/// The parts of a manager, for the conformance suite.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Parts {
    /// The store.
    pub backend: Arc<dyn DynBackend>,
    /// Where the store's messages arrive.
    pub inbox: Inbox,
    /// Whether the store queues waiters.
    pub queues: bool,
}

impl LockManager {
    /// Returns what the manager works with.
    #[doc(hidden)]
    #[must_use]
    pub fn parts(&self) -> Parts {
        let (engine, queues) = (self.engine(), self.engine().backend.capabilities().queue);
        Parts { backend: Arc::clone(&engine.backend), inbox: engine.inbox.clone(), queues }
    }

    /// Creates a manager in memory that uses the clock of the current tokio runtime.
    ///
    /// In a test with `#[tokio::test(start_paused = true)]`, time is virtual: waits and leases end as soon as every
    /// task waits, in the same way in each run. Calls that block a thread are refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_core::{LockManager, LossReason};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
    /// let locks = LockManager::for_tests();
    /// let guard = locks.lock("report").with_ttl(Duration::from_secs(600)).await?;
    /// locks.steal("report");
    /// assert_eq!(guard.lost().await, LossReason::Stolen); // after 200 s of virtual time
    /// # Ok::<(), lock_core::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn for_tests() -> TestLocks {
        let store = MemoryStore::new();
        let built = Self::builder(store.clone()).drive_on_current_runtime().build();
        TestLocks { locks: built.expect("a test with for_tests runs under #[tokio::test]"), store }
    }
}

impl TestLocks {
    /// Returns the manager itself, to be passed to the application.
    #[must_use]
    pub fn manager(&self) -> LockManager {
        self.locks.clone()
    }

    /// Takes a lock away without notifying its holder, like a flush of the store. The holder finds out when it renews.
    ///
    /// # Panics
    ///
    /// Panics if the key is not valid.
    pub fn steal(&self, key: impl IntoLockKey) {
        self.store.steal(&self.locks.key(key).expect("the key to steal is valid"));
    }

    /// Fails the next commands to the store. See [`MemoryStore::fail_next`].
    pub fn fail_next(&self, count: u32) {
        self.store.fail_next(count);
    }

    /// Makes the store unreachable, or reachable again. See [`MemoryStore::set_away`].
    pub fn set_away(&self, away: bool) {
        self.store.set_away(away);
    }

    /// Returns whether no lock is held or waited for.
    #[must_use]
    pub fn all_free(&self) -> bool {
        self.store.is_empty()
    }
}

impl Deref for TestLocks {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.locks
    }
}
