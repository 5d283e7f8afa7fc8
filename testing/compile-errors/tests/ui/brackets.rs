#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id")]
async fn open(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:id>")]
async fn stray(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<>")]
async fn empty(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<lookup(id).await>")]
async fn awaiting(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
