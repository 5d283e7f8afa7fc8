//! This library as a user gets it: tokens, holder info, watchdog, and metrics installed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_core::{LockGuard, LockManager, Striped, Wait};

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::{Contestant, TTL_MS};
use crate::contestant::store::Store;

/// A manager with the default settings, except that it waits without a limit, as the other contestants do.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    locks: LockManager,
    /// The segments of the one segmented key.
    segments: Arc<OnceLock<Striped>>,
}

impl Ours {
    pub(crate) async fn connect(store: Store, background: bool) -> Result<Self> {
        if lock_metrics::installed().is_none() {
            lock_metrics::install()?;
        }
        let builder = LockManager::builder_for(&store.url())?;
        let builder = builder.with_ttl(Duration::from_millis(TTL_MS)).with_wait(Wait::Forever);
        let locks = if background { builder.release_in_background() } else { builder }.build()?;
        locks.ping().await?;
        Ok(Self { locks, segments: Arc::default() })
    }
}

impl Contestant for Ours {
    type Held = LockGuard;

    async fn acquire(&self, key: &str, access: Access) -> Result<(Self::Held, u64)> {
        let guard = match access {
            Access::Alone => self.locks.lock(key).await?,
            Access::Read => self.locks.read(key).await?,
            Access::Permit(of) => self.locks.semaphore(key, of).await?,
            Access::Segment(of) => self.segments.get_or_init(|| self.locks.striped(key, of)).any().await?,
        };
        let token = guard.token().get();
        Ok((guard, token))
    }

    fn part(held: &Self::Held) -> u32 {
        held.stripe().unwrap_or(0)
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        held.release().await?;
        Ok(())
    }
}
