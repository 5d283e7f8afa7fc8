//! A value that moved: the compiler names the variable, and where it went.

use lock_core::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<name>", on_lost = |_error| Ok(name))]
async fn the_body_took_it(name: String) -> Result<String, LockError> {
    Ok(name)
}

#[distributed_lock(key = "user:<name>")]
async fn the_body_uses_it_twice(name: String) -> Result<String, LockError> {
    drop(name);
    Ok(name)
}

#[distributed_lock(key = "user:<name>")]
fn a_plain_body_uses_it_twice(name: String) -> Result<String, LockError> {
    drop(name);
    Ok(name)
}

fn a_task_took_it(locks: LockManager) {
    std::thread::spawn(move || locks.lock("report").acquire_blocking());
    drop(locks);
}

fn main() {}
