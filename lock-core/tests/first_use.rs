//! The programs that people write first.

#![deny(warnings)]

use lock_core::{LockError, LockManager, Wait, distributed_lock};
use lock_testing::limit;

#[distributed_lock(key = "k", wait = Wait::None, on_refused = None)]
async fn waits() -> Option<u32> {
    Some(1)
}

async fn start() -> Result<(), LockError> {
    let locks = LockManager::connect("memory://").await?;
    locks.install()?;
    let again = LockManager::in_memory().install().map_err(LockError::from).expect_err("one is enough");
    assert!(again.to_string().contains("already installed"), "{again}");
    assert_eq!(waits().await, Some(1));
    Ok(())
}

#[test]
#[limit]
fn a_manager_is_installed_once_and_found_by_the_attribute() {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(start()).unwrap();
}
