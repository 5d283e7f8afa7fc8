//! Reads the locks of a whole fleet from the store, for people and for inspectors.
//!
//! An acquire never uses this code. A scan is paced and bounded, and changes nothing.

mod scan;
mod topology;

use std::fmt;

use crate::api::connect::open;
use lock_store::contract::backend::{
    AnyBackend, Blocked, Finding, Freed, JobRecord, Revocation, RevokeFrom, SyncReport,
};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;
use lock_store::types::url::StoreUrl;

pub use lock_redis::inspect::{Part, Server};
pub use lock_store::contract::backend::{EntryState, FleetHolder, LockEntry, Waiter};
pub use scan::{Scan, ScanOptions};
pub use topology::Topology;

/// Reads the locks of all processes that use one store. The store is a Redis server, the master that sentinels name, a
/// Redis Cluster, or any other store that has an [`Inspector`](crate::store::Inspector).
///
/// The URL of any node of a Redis Cluster stands for its cluster. A scan reads the masters one after the other. A
/// command for one key goes to the master that serves it. Every node is reached with the credentials and settings of
/// the URL, at the address that the cluster announces. Replicas are never read. If the node of the URL cannot be
/// reached, the masters of the last scan are asked instead. At most a kilobyte of a value is read.
///
/// All members of a quorum are read at the same time, and a lock that a majority has is held. A member that does not
/// answer in time costs the others nothing, and [`members`](Self::members) and [`Scan::members`] name it.
///
/// ```no_run
/// use lock_core::inspect::{FleetReader, ScanOptions};
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let fleet = FleetReader::new("redis://127.0.0.1")?;
/// let mut scan = fleet.scan(ScanOptions::new().with_prefix("lock:"));
/// while let Some(batch) = scan.next().await? {
///     for entry in batch {
///         println!("{} is held by {}", entry.key, entry.holder);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct FleetReader {
    store: AnyBackend,
    /// The prefix of every key that is read.
    prefix: String,
}

impl FleetReader {
    /// Names a store by its URL, as in [`LockManager::connect`](crate::LockManager::connect). Opens no connection yet.
    ///
    /// With `?key_prefix=prod:`, scans see only the keys of that namespace. Keys are always passed and returned as they
    /// are in the store.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the URL cannot be read. The message
    /// never repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        let (store, prefix) = open(StoreUrl::read(url))?;
        Ok(Self { prefix: prefix.unwrap_or_default(), ..Self::of(store) })
    }

    /// Reads the locks of a store that is already open.
    ///
    /// ```
    /// use lock_core::inspect::FleetReader;
    /// use lock_core::{AnyBackend, LockManager, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_core::LockError> {
    /// let store = MemoryStore::new();
    /// let guard = LockManager::builder(store.clone()).build()?.lock("report").await?;
    /// let fleet = FleetReader::of(AnyBackend::new(store));
    /// assert!(fleet.entry(guard.key()).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of(store: AnyBackend) -> Self {
        Self { store, prefix: String::new() }
    }

    /// Returns the URL's `key_prefix`, empty if it has none.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the name of the URL's server: host, port and database, never a credential.
    #[must_use]
    pub fn node(&self) -> &str {
        self.store.name()
    }

    /// Checks that the server answers and accepts the credentials.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn ping(&self) -> Result<()> {
        self.store.backend().ping().await
    }

    /// Examines the servers, settings and permissions behind the store. Returns one [`Finding`] for each examined
    /// thing, including things that could not be examined. A store without a [`Doctor`](crate::store::Doctor) returns one
    /// finding that says so.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing on the servers.
    pub async fn examine(&self) -> Vec<Finding> {
        self.store.backend().examine().await
    }

    /// Returns the store on the server that has a key. In a Redis Cluster, this is the master of the key's slot. It
    /// serves locks whose keys are there.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn store_of(&self, key: &LockKey) -> Result<AnyBackend> {
        let keeper = self.store.backend().keeper(key.clone()).await?;
        Ok(keeper.unwrap_or_else(|| self.store.clone()))
    }

    /// Starts a walk through all locks. Sends no command before [`Scan::next`].
    #[must_use]
    pub fn scan(&self, options: ScanOptions) -> Scan<'_> {
        Scan::new(self, options)
    }

    /// Reads one lock. `None` if it is free. In a quorum, a lock may also be [`EntryState::Minority`] or
    /// [`EntryState::Unknown`].
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured). The latter also for a key with foreign
    /// data, and for a store without an inspector.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        self.store.backend().entry(key.clone()).await
    }

    /// Reads what each member of a quorum has of a key. `None` if the store is not a quorum.
    ///
    /// # Errors
    ///
    /// The answer of a member may be an error. The call itself fails for a store without an inspector only.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn members(&self, key: &LockKey) -> Result<Option<SyncReport<Option<LockEntry>>>> {
        self.store.backend().members(key.clone()).await
    }

    /// Lists the waiters in the store's queue for a key, in order of arrival.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        self.store.backend().waiters(key.clone()).await
    }

    /// Lists all holders of a lock, in the order in which their leases end: one holder, or all that share it.
    ///
    /// Readers of one process mostly share one claim, which counts as one holder here. The live view of that process
    /// names each reader.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holders(&self, key: &LockKey) -> Result<Vec<FleetHolder>> {
        let Some(entry) = self.entry(key).await? else { return Ok(Vec::new()) };
        if let (EntryState::Unknown, Some(members)) = (entry.state, &entry.members) {
            return Err(members.undecided("it is unknown whether the lock is held").with_key(key));
        }
        match entry.state {
            EntryState::Shared => self.store.backend().sharers(key.clone()).await,
            EntryState::Minority => Ok(Vec::new()),
            _ => Ok(vec![FleetHolder::from(entry)]),
        }
    }

    /// Reads the record of a job that has a period. `None` if it never ran, or was forgotten.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.store.backend().job(key.clone()).await
    }

    /// Reads which lock the holder of a lock waits for, if it published that recently.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        self.store_of(key).await?.backend().blocked(key.clone()).await
    }

    /// Takes a lock away from the holder with this identity, and from no other.
    ///
    /// First, the holder's process is told who takes the lock away and why. It reports the loss as
    /// [`LossReason::Revoked`](crate::LossReason::Revoked). Then the lock is released: the comparison and the deletion
    /// are one step on the server, and the next grant has a greater fencing token.
    ///
    /// A process that is not listening at the moment learns of the loss at its next renewal, as
    /// [`LossReason::Stolen`](crate::LossReason::Stolen). Until then it believes that it holds the lock. In between,
    /// only a resource that checks tokens is safe.
    ///
    /// With any outcome, a `tracing` event with the target `lock_core::audit` records who asked (`actor`), for which
    /// key, and why. The process of the holder emits one too.
    ///
    /// # Errors
    ///
    /// Like [`entry`](Self::entry). After [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable), the lock
    /// may or may not have been released. The call can safely be repeated.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The lock may still be taken away.
    pub async fn release(&self, key: &LockKey, owner: OwnerId, actor: &str, reason: &str) -> Result<Freed> {
        self.revoke(key, Revocation::new(RevokeFrom::Owner(owner), actor, reason)).await
    }

    /// Takes a lock away from a client of another library. Deletes the key if it has exactly this value, in one step on
    /// the server.
    ///
    /// That client is not notified. It finds out when it renews or releases, if it checks.
    ///
    /// Audited like [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// Like [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The lock may still be taken away.
    pub async fn release_foreign(&self, key: &LockKey, value: &[u8], actor: &str, reason: &str) -> Result<Freed> {
        self.revoke(key, Revocation::new(RevokeFrom::Foreign(value.to_vec()), actor, reason)).await
    }

    async fn revoke(&self, key: &LockKey, revocation: Revocation) -> Result<Freed> {
        let at = self.store_of(key).await;
        let freed = match &at {
            Ok(_) => self.store.backend().revoke(key.clone(), revocation.clone()).await,
            Err(error) => Err(error.clone()),
        };
        self.audit(&at, key, &revocation, &freed);
        freed
    }

    fn audit(&self, at: &Result<AnyBackend>, key: &LockKey, revocation: &Revocation, freed: &Result<Freed>) {
        let outcome = match freed {
            Ok(Freed::Released) => "released",
            Ok(Freed::NotHeld) => "not_held",
            Err(_) => "failed",
        };
        let (node, key) = (at.as_ref().map_or(self.node(), AnyBackend::name), key.as_str());
        let Revocation { from, actor, reason, .. } = revocation;
        let owner = if let RevokeFrom::Owner(owner) = from { Some(owner.short().to_string()) } else { None };
        tracing::warn!(
            target: "lock_core::audit",
            action = "release", node, key, owner, actor = actor.as_str(), reason = reason.as_str(), outcome,
            "an operator asked to release a lock"
        );
    }
}

impl fmt::Debug for FleetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetReader({})", self.node())
    }
}
