//! Annotated functions where every familiar name means something else.

#![no_implicit_prelude]
#![allow(non_camel_case_types, dead_code, unused_imports, unused_macros, reason = "the names are shadowed on purpose")]

use ::lock_core::{LockError, LockKey, LockManager, distributed_lock, lock_key};

struct Result;
struct Option;
struct Box;
struct Pin;
struct Future;
struct u64;
enum Shadow {
    Ok,
    Err,
    Some,
    None,
}
use self::Shadow::{Err, None, Ok, Some};
mod std {}
mod core {}
mod lock_core {}
mod tokio {}

macro_rules! concat {
    ($($any:tt)*) => {
        ::core::compile_error!("shadowed")
    };
}
macro_rules! unreachable {
    ($($any:tt)*) => {
        ::core::compile_error!("shadowed")
    };
}

type Answer = ::core::result::Result<u32, LockError>;

#[distributed_lock(key = "a:<id>:<id:03>", ttl = "10s", wait = "1s", renew = "2s", max_hold = "1m", client = locks, guard = lock)]
pub(crate) async fn asynchronous(locks: &LockManager, id: u32) -> Answer {
    lock.ensure_held()?;
    ::core::result::Result::Ok(id)
}

#[distributed_lock(key = "b", on_busy = "skip", on_error = "skip", on_lost = "skip", when = true, client = locks)]
pub(crate) fn synchronous(locks: &LockManager) -> ::core::option::Option<u32> {
    ::core::option::Option::Some(1)
}

#[distributed_lock(key = "c", on_error = "run_unlocked", client = locks)]
pub(crate) fn future(locks: &LockManager) -> impl ::core::future::Future<Output = Answer> {
    async { ::core::result::Result::Ok(1) }
}

#[distributed_lock(key = "d", client = locks)]
pub(crate) fn boxed(
    locks: &LockManager,
) -> ::core::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = Answer> + '_>> {
    ::std::boxed::Box::pin(async { ::core::result::Result::Ok(1) })
}

pub(crate) fn key(id: u32) -> ::core::result::Result<LockKey, LockError> {
    lock_key!("e:<id>")
}
