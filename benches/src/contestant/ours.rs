//! This library, as a user gets it: tokens, holder info, watchdog, and metrics installed.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, RedisStore, Wait};

use crate::Result;
use crate::contestant::contract::{Contestant, TTL_MS};

/// A manager with the default settings, except for a longer wait, since the others wait for ever
/// too.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    locks: LockManager,
}

impl Ours {
    pub(crate) async fn connect(port: u16, background: bool) -> Result<Self> {
        if lock_metrics::installed().is_none() {
            lock_metrics::install()?;
        }
        let store = RedisStore::new(&format!("redis://127.0.0.1:{port}/"))?;
        let builder = LockManager::builder(store).with_ttl(Duration::from_millis(TTL_MS)).with_wait(Wait::Forever);
        let locks = if background { builder.release_in_background() } else { builder }.build()?;
        locks.ping().await?;
        Ok(Self { locks })
    }
}

impl Contestant for Ours {
    type Held = LockGuard;

    async fn acquire(&self, key: &str) -> Result<(Self::Held, u64)> {
        let guard = self.locks.lock(key).await?;
        let token = guard.token().get();
        Ok((guard, token))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        held.release().await?;
        Ok(())
    }
}
