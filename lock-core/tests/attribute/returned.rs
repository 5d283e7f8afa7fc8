//! Functions that return a future which they made, under `deny(warnings)`.

use std::future::Future;
use std::pin::Pin;

use lock_core::{LockError, Result, distributed_lock};
use lock_testing::limit;

use crate::support::assert_send;

/// Statements before the future are under the lock too.
#[distributed_lock(key = "future:<id>", guard = lock)]
fn future(id: u64, steps: &mut Vec<&'static str>) -> impl Future<Output = Result<u64, LockError>> + Send {
    steps.push("prefix");
    async move {
        lock.ensure_held()?;
        steps.push("future");
        Ok(id)
    }
}

#[distributed_lock(key = "boxed:<id>", guard = lock)]
fn boxed<'a>(id: &'a u64, early: bool) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + 'a>> {
    if early {
        return Box::pin(async { Ok(0) });
    }
    Box::pin(async move {
        lock.ensure_held()?;
        Ok(*id)
    })
}

#[distributed_lock(key = "boxed-future:<id>")]
fn alias(id: &u64) -> futures_util::future::BoxFuture<'_, Result<u64, LockError>> {
    Box::pin(async move { Ok(*id) })
}

#[distributed_lock(key = "static:<id>", guard = lock)]
fn boxed_static(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>>>> {
    Box::pin(async move {
        lock.ensure_held()?;
        Ok(id)
    })
}

pub(crate) async fn futures() {
    let mut steps = Vec::new();
    assert_eq!(future(1, &mut steps).await.unwrap(), 1);
    assert_eq!(steps, ["prefix", "future"]);
    assert_eq!(boxed(&2, false).await.unwrap(), 2);
    assert_eq!(boxed(&2, true).await.unwrap(), 0);
    assert_eq!(alias(&3).await.unwrap(), 3);
    assert_eq!(boxed_static(4).await.unwrap(), 4);
}

#[test]
#[limit]
fn returned_futures_stay_send() {
    assert_send(&boxed(&1, true));
    assert_send(&alias(&1));
}
