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

#[distributed_lock(key = "k", wait = "never")]
async fn never() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", on_refused = "run_unlocked", min_hold_on = "success")]
async fn refused() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", min_hold_on = true)]
async fn min_hold_on() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", b])]
async fn mixed(b: String) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<a><b>")]
async fn unseparated(a: u32, b: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<id>", guard = id)]
async fn hidden(id: u32, lock: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", durability = "acks=0")]
async fn no_acks() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", durability = 1)]
async fn bare_acks() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", acks = 1)]
async fn acks_alone() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = none, on_refused = skip, durability = master)]
async fn words_without_quotes() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key =)]
async fn nothing_given() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["a", "b"])]
async fn a_list() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", crate = locks::<u8>)]
async fn crate_with_arguments() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<type>")]
async fn a_keyword(r#type: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<r#id>", guard = r#id)]
async fn hidden_by_a_raw_name(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = "5\u{200b}s", mode = "re\u{202e}ad")]
async fn invisible() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
