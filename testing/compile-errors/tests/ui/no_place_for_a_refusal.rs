#![allow(unused)]

use lock_core::{LockError, distributed_lock};

type Alias = u32;

#[distributed_lock(key = "k")]
async fn number() -> u32 {
    1
}

#[distributed_lock(key = "k", on_busy = "skip")]
async fn nothing() {}

#[distributed_lock(key = "k")]
fn aliased() -> Alias {
    1
}

#[distributed_lock(key = "k")]
async fn never() -> ! {
    loop {}
}

#[distributed_lock(key = "k", on_busy = "skip", on_error = "skip", on_lost = "skip")]
async fn nothing_to_skip_with() -> Result<u64, LockError> {
    Ok(1)
}

#[distributed_lock(key = "k", map_err = |error| error)]
async fn nothing_to_map() -> Option<u64> {
    None
}

fn main() {}
