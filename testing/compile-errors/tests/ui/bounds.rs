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

#[distributed_lock(key = "k", at_most_every = "31d")]
async fn period() -> Result<Option<()>, LockError> {
    Ok(None)
}

#[distributed_lock(key = "k", min_hold = "31d")]
async fn min_hold() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", permits = 1_000_001)]
async fn permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", renew = "5ms")]
async fn renewal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<((((((((((((((((((((((((((((((((((id))))))))))))))))))))))))))))))))))>")]
async fn nested(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", when = ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((true)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))]
async fn nested_value() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
