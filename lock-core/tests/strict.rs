//! A crate that allows nothing.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused_qualifications, unreachable_pub, rust_2018_idioms, single_use_lifetimes)]
#![deny(clippy::all, clippy::pedantic)]

use lock_core::{LockError, LockManager, distributed_lock};
use lock_testing::limit;

/// Charges.
#[distributed_lock(key = "lock:user:<user_id>", ttl = "10s", client = locks)]
pub async fn charge(locks: &LockManager, user_id: u64) -> Result<u64, LockError> {
    Ok(user_id)
}

#[distributed_lock(key = "lock:user:<user_id>", ttl = "10s", client = locks, docs = false)]
fn charge_blocking(locks: &LockManager, user_id: u64) -> Result<u64, LockError> {
    Ok(user_id)
}

#[tokio::test]
#[limit]
async fn the_attribute_passes_the_lints_of_whoever_uses_it() {
    let locks = LockManager::in_memory();
    assert_eq!(charge(&locks, 1).await.unwrap(), 1);
    assert_eq!(charge_blocking(&locks, 1).unwrap(), 1);
    assert_eq!(lock_core::sites().count(), 2);
}
