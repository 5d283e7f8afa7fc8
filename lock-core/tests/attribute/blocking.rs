//! Every shape of synchronous function, under `deny(warnings)`.

use std::fmt::Display;

use lock_core::{LockError, distributed_lock};
use lock_testing::limit;

use crate::support::manager;

#[distributed_lock(key = "sync:<id>", ttl = "10s")]
fn blocking(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "sync:borrow")]
fn blocking_borrow<'a>(left: &'a mut Vec<u32>, right: &mut u32) -> Result<&'a mut u32, LockError> {
    *right += 1;
    left.push(*right);
    left.last_mut().ok_or_else(|| unreachable!())
}

#[distributed_lock(key = "sync:generic:<value>")]
fn blocking_generic<T: Display + Clone, const N: usize>(value: &T) -> Result<[T; N], LockError> {
    Ok([(); N].map(|()| value.clone()))
}

#[distributed_lock(key = "sync:opaque")]
fn blocking_opaque<'a>(values: &'a [u32]) -> Result<impl Iterator<Item = u32> + 'a, LockError> {
    Ok(values.iter().map(|value| value + 1))
}

#[distributed_lock(key = "sync:mut")]
fn blocking_mutable(mut count: u32, (left, mut right): (u32, u32)) -> Result<u32, LockError> {
    count += 1;
    right += left;
    Ok(count + right)
}

#[distributed_lock(key = "sync:unit", on_busy = "skip", on_error = "skip", on_lost = "ignore")]
fn blocking_unit(hits: &mut u32) {
    if *hits > 100 {
        return;
    }
    *hits += 1;
}

#[distributed_lock(key = "sync:unsafe")]
unsafe fn blocking_unsafe(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "sync:when:<id>", when = id > 10 && id < 20, on_error = "run_unlocked")]
fn blocking_when(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "never", on_busy = |_| panic!("busy"), on_error = |error| panic!("{error}"))]
#[allow(dead_code, reason = "only its types matter")]
fn never_blocking() -> ! {
    panic!("inside")
}

pub(crate) fn synchronous() {
    assert_eq!(blocking(1).unwrap(), 1);
    let (mut left, mut right) = (vec![], 1);
    *blocking_borrow(&mut left, &mut right).unwrap() += 10;
    assert_eq!(left, [12]);
    assert_eq!(blocking_generic::<_, 2>(&1).unwrap(), [1, 1]);
    assert_eq!(blocking_opaque(&[1, 2]).unwrap().sum::<u32>(), 5);
    assert_eq!(blocking_mutable(1, (2, 3)).unwrap(), 7);
    let mut hits = 0;
    blocking_unit(&mut hits);
    assert_eq!(hits, 1);
    assert_eq!(blocking_when(5).unwrap(), 5);
}

/// More often than a task of tokio may wait without yielding.
#[tokio::test]
#[limit]
async fn blocking_calls_inside_of_a_runtime() {
    let locks = manager();
    let _default = locks.set_default();
    for id in 0..1_000 {
        assert_eq!(blocking(id).unwrap(), id);
    }
}
