#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", ttl = "200ms")]
async fn short() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", ttl = "20ms", renew = false)]
async fn shorter() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", ttl = "31d")]
async fn long() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", ttl = "10s", renew = "8s", min_hold = "11s")]
async fn out_of_proportion() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
