#![allow(unused)]

use lock_core::{LockError, distributed_lock};

use async_trait::async_trait;

#[async_trait]
trait Service {
    async fn ship(&self, address: (u32, u32)) -> Result<(), LockError>;
}

struct Shop;

#[async_trait]
impl Service for Shop {
    #[distributed_lock(key = "house:<street>:<number>")]
    async fn ship(&self, (street, number): (u32, u32)) -> Result<(), LockError> {
        let _ = (street, number);
        Ok(())
    }
}

fn main() {}
