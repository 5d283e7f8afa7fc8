#![allow(unused)]

use std::time::SystemTime;

use lock_core::{LockError, distributed_lock};

#[distributed_lock(keys = ["a", "b"], once_for = "v1")]
async fn several() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1", mode = "read")]
async fn shared() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h", once_for = "v1")]
async fn a_job_too() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1", when = maybe)]
async fn sometimes(maybe: bool) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1", on_error = "run_unlocked")]
async fn unlocked() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1", on_lost = "ignore")]
async fn ignores() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1", retry_failed)]
async fn retries() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for = "v1")]
async fn cannot_skip() -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "k", once_for = 42)]
async fn no_text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", once_for)]
async fn no_value() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
