#![allow(unused)]

use lock_core::{LockError, distributed_lock};

use std::future::Future;
use std::pin::Pin;

type Task = Pin<Box<dyn Future<Output = Result<u64, LockError>>>>;

#[distributed_lock(key = "k")]
fn aliased() -> Task {
    Box::pin(async { Ok(1) })
}

fn main() {}
