#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", ttl = "10")]
async fn text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = 10)]
async fn number() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
