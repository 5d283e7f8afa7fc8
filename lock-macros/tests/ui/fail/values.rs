#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", on_busy = "skp")]
async fn action() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_busy = "run_unlocked")]
async fn never_run_when_busy() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = "forver")]
async fn wait() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = format!("k"))]
async fn key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock("k")]
async fn unnamed() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock]
async fn missing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", keys = [], guard = "lock", label = 1, reentrant = 1, ttl)]
async fn kinds() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
