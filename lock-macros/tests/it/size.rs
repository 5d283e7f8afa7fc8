//! An annotated future is not much larger than a plain one.

use lock_core::{LockError, distributed_lock};

type Large = [u8; 1024];

async fn plain(value: Large) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(value[0])
}

#[distributed_lock(key = "size:<value[0]>", ttl = "10s", wait = "1s", max_hold = "1m", guard = _lock)]
async fn locked(value: Large) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(value[0])
}

#[distributed_lock(key = "size:<value[0]>", on_error = "run_unlocked", when = value[1] == 0)]
async fn maybe_locked(value: Large) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(value[0])
}

async fn plain_small() {}

#[distributed_lock(key = "size", on_busy = "skip", on_error = "skip", on_lost = "skip")]
async fn locked_small() {}

async fn plain_output() -> Result<Large, LockError> {
    tokio::task::yield_now().await;
    Ok([0; 1024])
}

#[distributed_lock(key = "size")]
async fn locked_output() -> Result<Large, LockError> {
    tokio::task::yield_now().await;
    Ok([0; 1024])
}

#[test]
fn the_future_grows_by_little() {
    fn grown(locked: &impl Future, plain: &impl Future) -> usize {
        size_of_val(locked).saturating_sub(size_of_val(plain))
    }
    let value = [0; 1024];
    let sizes = [
        grown(&locked(value), &plain(value)),
        grown(&maybe_locked(value), &plain(value)),
        grown(&locked_small(), &plain_small()),
    ];
    println!("{sizes:?}, and with a large output {}", grown(&locked_output(), &plain_output()));
    assert!(sizes.iter().all(|size| *size <= 512), "{sizes:?}");
    // The output waits while the lock is released.
    assert!(grown(&locked_output(), &plain_output()) <= 512 + 1024);
}
