#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "user:<usr_id>", tll = "10s", wait = "10", on_lost = "cancel", on_busy = "skp")]
const fn everything_wrong(user_id: u64) -> Result<(), LockError> {
    Ok(())
}

// The item is still there for its callers.
fn caller() {
    let _ = everything_wrong(1);
}

fn main() {}
