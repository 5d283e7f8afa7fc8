//! The bound for one process: a tokio mutex, which is fair and needs no store.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::Contestant;

/// One mutex for every key, so it only suits work on a single key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Local(Arc<Mutex<()>>);

impl Contestant for Local {
    type Held = OwnedMutexGuard<()>;

    async fn acquire(&self, _key: &str, _access: Access) -> Result<(Self::Held, u64)> {
        Ok((Arc::clone(&self.0).lock_owned().await, 0))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        drop(held);
        Ok(())
    }
}
