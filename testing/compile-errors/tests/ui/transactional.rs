#![allow(unused)]

use lock_core::{LockError, distributed_lock};

// Stands for the attributes of database crates.
use lock_core::distributed_lock as transactional;

#[distributed_lock(key = "k")]
#[transactional(key = "k")]
async fn commits_too_late() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
