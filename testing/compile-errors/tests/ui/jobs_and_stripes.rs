#![allow(unused)]

use std::time::SystemTime;

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", at_most_every = "1h", wait = "5s")]
async fn waits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_busy = "error", once_at = at)]
async fn has_its_own_skip(at: SystemTime) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h", min_hold = "1m", min_hold_on = "ok")]
async fn keeps_twice() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h", once_at = at)]
async fn both(at: SystemTime) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "10ms")]
async fn too_often() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", retry_failed, run_once_even_if = "crashed")]
async fn no_job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h", run_once_even_if = "failed")]
async fn unknown_end() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h")]
async fn cannot_skip() -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "k", once_at = at)]
async fn no_time(at: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "<id>", stripes = 8)]
async fn no_name(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", stripes = 8)]
async fn no_value() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a:<id>", "b:<id>"], stripes = 8)]
async fn several(id: u32) -> Result<(), LockError> {
    Ok(())
}

const COUNT: u32 = 8;

#[distributed_lock(key = "a:<id>", stripes = COUNT)]
async fn a_constant(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a:<id>", stripes = 1)]
async fn too_few(id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a:<id>", stripes = 8, at_most_every = "1h")]
async fn striped_job(id: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
