#![allow(unused)]

use lock_core::{LockError, distributed_lock};

use std::time::Duration;

const SECONDS: u64 = 10;

struct Opaque;

#[distributed_lock(key = "k", ttl = SECONDS)]
async fn ttl() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = SECONDS)]
async fn wait() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", when = SECONDS)]
async fn when() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", client = SECONDS)]
async fn client() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<value>")]
async fn not_shown(value: Opaque) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<id>:<ids>")]
async fn option_and_list(id: Option<u64>, ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = count)]
async fn no_iterator(count: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ids)]
async fn no_keys(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_refused = SECONDS)]
async fn no_answer() -> Option<u32> {
    None
}

#[distributed_lock(key = "k", on_refused = 1)]
async fn no_value() -> Option<u32> {
    None
}

#[distributed_lock(key = "k", on_refused = "skip", min_hold = "1m", min_hold_on = "ok")]
async fn never_fails() {}

#[distributed_lock(key = "k", durability = SECONDS)]
async fn durability() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", ttl = Duration::from_secs(SECONDS))]
async fn body() -> Result<u32, LockError> {
    let text: u32 = "text";
    Ok("not a number")
}

#[distributed_lock(key = "k")]
fn synchronous_body() -> Result<u32, LockError> {
    if SECONDS > 1 {
        return Ok("not a number");
    }
}

#[distributed_lock(key = "k", at_most_every = "1h")]
async fn no_skip_for_a_job() -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "k:<id.to_strng()>")]
async fn misspelt_method(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
