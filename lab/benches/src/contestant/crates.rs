//! The locks of other crates: rslock, distkit, and the mutex of tokio.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
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

/// One connection of distkit, and the locks of one owner. Each is bound to its key, so all tasks share it.
#[derive(Clone)]
pub(crate) struct Distkit {
    connection: ConnectionManager,
    known: Arc<std::sync::Mutex<HashMap<String, Lock>>>,
    new: fn(LockOptions) -> Lock,
}

#[derive(Clone)]
enum Lock {
    Mutex(Arc<Mutex>),
    RwLock(Arc<RwLock>),
}

/// A guard of distkit.
pub(crate) enum Guard {
    Mutex(MutexGuard),
    Reader(RwLockReadGuard),
    Writer(RwLockWriteGuard),
}

impl Distkit {
    /// Connects, and returns this many owners of mutexes or of read-write locks.
    pub(crate) async fn open(port: u16, reads: bool, owners: u32) -> Result<Vec<Self>> {
        let connection = Client::open(("127.0.0.1", port))?.get_connection_manager().await?;
        let new = if reads { |o| Lock::RwLock(RwLock::new(o)) } else { |o| Lock::Mutex(Mutex::new(o)) };
        Ok((0..owners).map(|_| Self { connection: connection.clone(), known: Arc::default(), new }).collect())
    }

    fn lock(&self, key: &str) -> Result<Lock> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = known.get(key) {
            return Ok(lock.clone());
        }
        let options = LockOptions::builder(DistkitRedisKey::try_sanitize(key.to_owned())?, self.connection.clone());
        let lock = (self.new)(options.ttl(Duration::from_millis(TTL_MS)).build());
        known.insert(key.to_owned(), lock.clone());
        Ok(lock)
    }
}

impl Contestant for Distkit {
    type Held = Guard;

    async fn acquire(&self, key: &str, access: Access) -> Result<(Self::Held, u64)> {
        let held = match (self.lock(key)?, access) {
            (Lock::Mutex(lock), _) => Guard::Mutex(lock.lock().await?),
            (Lock::RwLock(lock), Access::Read) => Guard::Reader(lock.read().await?),
            (Lock::RwLock(lock), _) => Guard::Writer(lock.write().await?),
        };
        Ok((held, 0))
    }

    async fn release(&self, held: Self::Held) -> Result<()> {
        let state = match held {
            Guard::Mutex(guard) => guard.release().await?,
            Guard::Reader(guard) => guard.release().await?,
            Guard::Writer(guard) => guard.release().await?,
        };
        match state {
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
