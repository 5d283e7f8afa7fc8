#![allow(unused)]

use lock_core::distributed_lock;

struct MyError;

#[distributed_lock(key = "k")]
async fn asynchronous() -> Result<u64, MyError> {
    Ok(1)
}

#[distributed_lock(key = "k")]
fn synchronous() -> Result<u64, MyError> {
    Ok(1)
}

fn main() {}
