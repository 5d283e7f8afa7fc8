#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", keys = ["a", "b"])]
async fn key_and_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", key = "l")]
async fn twice() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", guard = lock, when = true)]
async fn guard_and_when() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_error = "run_unlocked", guard = lock)]
async fn guard_and_run_unlocked() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", max_hold = "1m", renew = false)]
async fn max_hold_without_renewal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_busy = "skip", on_error = |_| Ok(()), on_lost = "skip", map_err = From::from)]
async fn nothing_to_map() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_lost = "cancel")]
fn cancel_a_synchronous_function() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
