// rustc says nothing by itself; the docs of `LockGuard` name this lint.
#![deny(let_underscore_drop)]

use lock_core::{LockError, LockManager};

async fn frees_at_once(locks: &LockManager) -> Result<(), LockError> {
    let _ = locks.lock("k").await?;
    Ok(())
}

async fn holds(locks: &LockManager) -> Result<(), LockError> {
    let _guard = locks.lock("k").await?;
    Ok(())
}

fn main() {
    let _ = (frees_at_once, holds);
}
