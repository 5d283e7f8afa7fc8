//! The locks of other crates: rslock, distkit, and the mutex of tokio.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use redis::Client;
use redis::aio::ConnectionManager;
use tokio::sync::OwnedMutexGuard;

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::{Contestant, TTL_MS};

/// A manager of rslock with one server.
#[derive(Clone, Debug)]
pub(crate) struct Rslock(rslock::LockManager);

impl Rslock {
    pub(crate) fn new(port: u16, retry_ms: Option<u64>) -> Self {
        let mut manager = rslock::LockManager::new(vec![format!("redis://127.0.0.1:{port}/")]);
        if let Some(pause) = retry_ms {
            manager.set_retry(u32::MAX, Duration::from_millis(pause));
        }
        Self(manager)
    }
}

impl Contestant for Rslock {
    type Held = rslock::LockGuard;

    async fn acquire(&self, key: &str, _access: Access) -> Result<(Self::Held, u64)> {
        Ok((self.0.acquire(key.as_bytes(), Duration::from_millis(TTL_MS)).await?, 0))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        held.release().await;
        Ok(())
    }
}

/// One connection of distkit, and the mutexes of this process. Each is bound to its key, so all tasks share it.
#[derive(Clone)]
pub(crate) struct Distkit(ConnectionManager, Arc<std::sync::Mutex<HashMap<String, Arc<Mutex>>>>);

impl Distkit {
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        Ok(Self(Client::open(("127.0.0.1", port))?.get_connection_manager().await?, Arc::default()))
    }

    fn mutex(&self, key: &str) -> Result<Arc<Mutex>> {
        let mut known = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mutex) = known.get(key) {
            return Ok(Arc::clone(mutex));
        }
        let options = LockOptions::builder(DistkitRedisKey::try_sanitize(key.to_owned())?, self.0.clone());
        let mutex = Mutex::new(options.ttl(Duration::from_millis(TTL_MS)).build());
        known.insert(key.to_owned(), Arc::clone(&mutex));
        Ok(mutex)
    }
}

impl Contestant for Distkit {
    type Held = MutexGuard;

    async fn acquire(&self, key: &str, _access: Access) -> Result<(Self::Held, u64)> {
        Ok((self.mutex(key)?.lock().await?, 0))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        match held.release().await? {
            LockGuardState::Released => Ok(()),
            state => Err(format!("the lock was {state:?} at its release").into()),
        }
    }
}

/// The mutex of tokio, without a store: the bound for one process. It serves every key, so it only suits a single key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Local(Arc<tokio::sync::Mutex<()>>);

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
