#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "user:{user_id}")]
async fn braces(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:#user_id")]
async fn hash(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:#{user_id}")]
async fn hash_braces(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:${user_id}")]
async fn dollar_braces(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:%s")]
async fn percent(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:$user_id")]
async fn dollar(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:%(user_id)s")]
async fn percent_of_python(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:{}")]
async fn one_of_two(user_id: u64, amount: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
