//! A master behind sentinels: where it is, and what happens when another takes over.

mod durability;
mod failover;
mod finding;
mod partition;
mod processes;

use lock_core::{LockManager, LockOptions};
use lock_testing::RedisSentinels;

use crate::support::SECOND;

/// A manager that follows the master.
async fn follow(servers: &RedisSentinels) -> LockManager {
    let options = LockOptions::default().with_ttl(10 * SECOND).with_wait(30 * SECOND);
    LockManager::connect_with(&servers.url(), options).await.unwrap()
}
