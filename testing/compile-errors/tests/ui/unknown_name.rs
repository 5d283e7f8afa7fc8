#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "user:<usr_id>")]
async fn charge(user_id: u64, amount: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<order.id>")]
async fn far(user_id: u64, amount: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<self.id>")]
async fn no_receiver() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
