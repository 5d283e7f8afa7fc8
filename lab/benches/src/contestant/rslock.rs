//! The crate rslock, which Rust services use today.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::{Contestant, TTL_MS};

/// A manager of rslock with one server.
#[derive(Clone, Debug)]
pub(crate) struct Rslock(LockManager);

impl Rslock {
    pub(crate) fn new(port: u16, retry_ms: Option<u64>) -> Self {
        let mut manager = LockManager::new(vec![format!("redis://127.0.0.1:{port}/")]);
        if let Some(pause) = retry_ms {
            manager.set_retry(u32::MAX, Duration::from_millis(pause));
        }
        Self(manager)
    }
}

impl Contestant for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, key: &str, _access: Access) -> Result<(Self::Held, u64)> {
        Ok((self.0.acquire(key.as_bytes(), Duration::from_millis(TTL_MS)).await?, 0))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        held.release().await;
        Ok(())
    }
}
