//! An `unsafe fn` stays one: its callers promise, and its body may rely on it.

use lock_core::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "unsafe", client = locks)]
async unsafe fn asynchronous(locks: &LockManager, value: *const u32) -> Result<u32, LockError> {
    Ok(unsafe { *value })
}

#[distributed_lock(key = "unsafe", client = locks)]
unsafe fn synchronous(locks: &LockManager, value: *const u32) -> Result<u32, LockError> {
    Ok(unsafe { *value })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (locks, value) = (LockManager::in_memory(), 7);
    assert_eq!(unsafe { asynchronous(&locks, &raw const value) }.await.unwrap(), 7);
    assert_eq!(asynchronous(&locks, &raw const value).await.unwrap(), 7);
    assert_eq!(synchronous(&locks, &raw const value).unwrap(), 7);
}
