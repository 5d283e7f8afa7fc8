#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k", mode = "shared")]
async fn unknown_mode() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", mode = "raed")]
async fn mistyped_mode() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", mode = "read", permits = 4)]
async fn permits_and_mode() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], mode = "read")]
async fn several_read() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", permits = 0)]
async fn no_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", weight = 2)]
async fn weight_alone() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", permits = 2, weight = 3)]
async fn too_heavy() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", at_most_every = "1h", mode = "read")]
async fn job_beside_others() -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

#[distributed_lock(key = "k", at_most_every = "1h", permits = 2)]
async fn job_with_permits() -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

fn main() {}
