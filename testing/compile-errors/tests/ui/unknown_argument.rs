#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", tll = "10s")]
async fn near() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", timeout = "10s", isolation = "high")]
async fn from_other_libraries() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
