//! The library under another path: renamed, or re-exported by another crate.

#![deny(warnings)]

mod vendor {
    pub(crate) use lock_core as locking;
}

use lock_testing::limit;
use vendor::locking::{LockError, LockManager, distributed_lock, lock_key};

// A program that has the library only under another name lacks a crate of this name.
mod lock_core {}

#[distributed_lock(key = "k:<id>", wait = "1s", renew = "2s", client = locks, guard = lock, crate = crate::vendor::locking)]
async fn asynchronous(locks: &LockManager, id: u32) -> Result<u32, LockError> {
    lock.ensure_held()?;
    Ok(id)
}

#[distributed_lock(key = "k", on_busy = "skip", on_error = "skip", on_lost = "skip", client = locks, crate = "vendor::locking")]
fn synchronous(locks: &LockManager) {}

#[tokio::test]
#[limit]
async fn the_attribute_finds_the_library_where_it_is_told_to() {
    let locks = LockManager::in_memory();
    assert_eq!(asynchronous(&locks, 1).await.unwrap(), 1);
    synchronous(&locks);
    assert!(lock_key!(crate = crate::vendor::locking, "k").is_ok());
}
