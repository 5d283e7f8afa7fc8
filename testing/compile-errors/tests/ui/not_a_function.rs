#![allow(unused)]

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "k")]
struct Thing;

struct Other;

#[distributed_lock(key = "k")]
impl Other {
    fn method(&self) {}
}

trait Service {
    #[distributed_lock(key = "k")]
    async fn declared(&self) -> Result<(), LockError>;
}

#[distributed_lock(key = "k")]
const fn constant() -> Result<u8, LockError> {
    Ok(1)
}

fn main() {}
