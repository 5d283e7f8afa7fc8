//! An annotated future is not much larger than a plain one.

use lock_core::{LockError, distributed_lock};
use lock_testing::limit;

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

#[distributed_lock(key = "size", on_lost = "error")]
async fn accompanied_output() -> Result<Large, LockError> {
    tokio::task::yield_now().await;
    Ok([0; 1024])
}

async fn plain_local() -> Result<u8, LockError> {
    let mut local = [0; 4096];
    tokio::task::yield_now().await;
    local[0] = 1;
    tokio::task::yield_now().await;
    Ok(local[0])
}

#[distributed_lock(key = "size")]
async fn locked_local() -> Result<u8, LockError> {
    let mut local = [0; 4096];
    tokio::task::yield_now().await;
    local[0] = 1;
    tokio::task::yield_now().await;
    Ok(local[0])
}

async fn plain_everything(value: Large) -> Result<Large, LockError> {
    let mut local = [0; 4096];
    tokio::task::yield_now().await;
    local[0] = value[0];
    tokio::task::yield_now().await;
    Ok([local[0]; 1024])
}

#[distributed_lock(key = "size:<value[0]>")]
async fn locked_everything(value: Large) -> Result<Large, LockError> {
    let mut local = [0; 4096];
    tokio::task::yield_now().await;
    local[0] = value[0];
    tokio::task::yield_now().await;
    Ok([local[0]; 1024])
}

#[expect(clippy::manual_async_fn, reason = "this shape is measured")]
fn plain_future(value: Large) -> impl Future<Output = Result<Large, LockError>> {
    async move {
        tokio::task::yield_now().await;
        Ok(value)
    }
}

#[distributed_lock(key = "size:<value[0]>")]
fn locked_future(value: Large) -> impl Future<Output = Result<Large, LockError>> {
    async move {
        tokio::task::yield_now().await;
        Ok(value)
    }
}

/// Whatever is large: an argument, a local, the output, or all of them.
#[test]
#[limit]
fn the_future_grows_by_little() {
    fn grown(locked: &impl Future, plain: &impl Future) -> (usize, usize) {
        (size_of_val(locked), size_of_val(plain))
    }
    let value = [0; 1024];
    let sizes = [
        ("argument", grown(&locked(value), &plain(value))),
        ("maybe locked", grown(&maybe_locked(value), &plain(value))),
        ("nothing", grown(&locked_small(), &plain_small())),
        ("output", grown(&locked_output(), &plain_output())),
        ("output, not cancelled", grown(&accompanied_output(), &plain_output())),
        ("local", grown(&locked_local(), &plain_local())),
        ("everything", grown(&locked_everything(value), &plain_everything(value))),
        ("returned future", grown(&locked_future(value), &plain_future(value))),
    ];
    for (what, (locked, plain)) in sizes {
        println!("{what}: {locked} bytes, {plain} without the lock");
        assert!(locked <= plain + 512, "{what}: {locked} bytes, {plain} without the lock");
    }
}
