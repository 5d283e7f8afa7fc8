//! The handle that services keep. It connects to a store and makes requests.

mod builder;

use std::sync::Arc;
use std::time::Duration;

use crate::api::lock::LockRequest;
use crate::api::stripe::Stripings;
use crate::engine::acquire::all::in_order;
use crate::engine::handle::EngineHandle;
use crate::engine::report::event_context::Origin;
use crate::engine::shared::{Caller, Engine};
use crate::engine::watch::following::Following;
use crate::memory::MemoryStore;
use lock_store::contract::backend::{AnyBackend, BoxFuture, DynBackend, JobRecord, LockBackend, SyncReport};
use lock_store::contract::event::{LockObserver, Observers};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::{HandoffLimits, LockOptions};
use lock_store::types::order::LockOrder;
use lock_store::types::owner::Holder;

pub use builder::LockManagerBuilder;

/// How long [`LockManager::ping`] waits for the store's first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes locks in one store. Cheap to clone; clones share connections and watchdog.
///
/// ```no_run
/// use std::time::Duration;
/// use lock_core::LockManager;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::connect("redis://127.0.0.1/").await?;
/// let guard = locks.lock("nightly-report").await?;
/// guard.ensure_held()?;
/// guard.release().await?;
/// locks.shutdown(Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
///
/// When the last handle or guard is dropped, the drop waits up to 250 ms for releases that are in flight. Otherwise a
/// guard that is dropped right before `main` returns would stay locked until its lease ends.
///
/// A manager belongs to the process in which it was made. In a forked child, every call of it is an error, and dropping
/// a guard does nothing. Connect a new manager in the child.
///
/// An installed manager is never dropped: call [`shutdown`](Self::shutdown).
#[derive(Clone, Debug)]
pub struct LockManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Arc<EngineHandle>,
    options: LockOptions,
    /// The prefix of every key. Empty for none.
    key_prefix: Box<str>,
    serves_while_stopping: bool,
    origin: Arc<Origin>,
    stripings: Stripings,
    following: Following,
}

impl LockManager {
    /// Creates a manager with its own memory store, which no other manager shares.
    ///
    /// # Panics
    ///
    /// Panics if the system refuses the keeper's thread.
    #[must_use]
    pub fn in_memory() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "documented; a process that cannot start a thread cannot be helped here"
        )]
        Self::builder(MemoryStore::new()).build().expect("the system starts the keeper's thread")
    }

    /// Starts to build a manager over any store.
    ///
    /// For a URL, make the store first: `LockManager::builder(RedisStore::new("redis://127.0.0.1")?)`.
    pub fn builder(store: impl LockBackend) -> LockManagerBuilder {
        Self::builder_shared(Arc::new(store))
    }

    /// Starts to build a manager over a store that other managers use too. The managers of one store exclude each other
    /// like processes.
    pub fn builder_shared(store: Arc<impl LockBackend>) -> LockManagerBuilder {
        Self::over(store)
    }

    /// Starts to build a manager over a store whose type is not known.
    pub fn builder_of(store: AnyBackend) -> LockManagerBuilder {
        Self::over(store.backend)
    }

    fn over(backend: Arc<dyn DynBackend>) -> LockManagerBuilder {
        LockManagerBuilder {
            backend,
            options: LockOptions::default(),
            key_prefix: None,
            observers: Observers::new(),
            host: None,
            store_name: None,
            handoff: HandoffLimits { passes: HandoffLimits::MOST, slice: Duration::from_millis(10) },
            on_current_runtime: false,
            serves_while_stopping: false,
            strict: false,
            lint_lock_order: cfg!(feature = "test-util"),
        }
    }

    /// Asks for the lock of a key. It is not taken until the request is awaited.
    #[track_caller]
    pub fn lock(&self, key: impl IntoLockKey) -> LockRequest {
        LockRequest::new(self.clone(), self.key(key).map(RequestedKeys::One))
    }

    /// Asks to read the data that a key protects, together with other readers and never together with a writer.
    ///
    /// Readers and writers are served in the order of their claims. A new claim never passes a waiting writer, so
    /// neither side starves. Readers of one process share one claim while no writer waits, so most of them cost no
    /// command. A reader that comes while an earlier reader of its process still waits enters together with it. All
    /// readers between two writers have the same fencing token.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let (one, other) = (locks.read("price:7").await?, locks.read("price:7").await?);
    /// assert_eq!(one.token(), other.token());
    /// assert!(locks.write("price:7").try_acquire().await?.is_none());
    /// # drop((one, other));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn read(&self, key: impl IntoLockKey) -> LockRequest {
        self.lock(key).sharing(Ok(Mode::READ))
    }

    /// Asks to write the data that a key protects. This is the same as [`lock`](Self::lock), with the name that goes
    /// with [`read`](Self::read).
    #[track_caller]
    pub fn write(&self, key: impl IntoLockKey) -> LockRequest {
        self.lock(key)
    }

    /// Asks for one of `permits` permits of a key. At most this many callers of the fleet are inside at the same time.
    /// [`with_weight`](LockRequest::with_weight) takes several permits.
    ///
    /// The number is part of the request and is not stored: to resize, ask with another number. Each permit has its own
    /// lease, so a crash returns only the permits of that process. An exclusive lock of the same key waits until all
    /// permits are free. A [`read`](Self::read) of the same key enters beside them, so give a semaphore a key of its
    /// own.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let three = locks.semaphore("uploads", 4).with_weight(3).await?;
    /// let last = locks.semaphore("uploads", 4).await?;
    /// assert!(locks.semaphore("uploads", 4).try_acquire().await?.is_none());
    /// # drop((three, last));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn semaphore(&self, key: impl IntoLockKey, permits: u32) -> LockRequest {
        self.lock(key).sharing(Mode::permits(1, permits))
    }

    /// Asks for the locks of several keys at once: all or none, within one budget.
    ///
    /// The first attempt takes all of them in one step of the store, or none. Redis can do this for up to 50 keys. In a
    /// cluster they must share a slot: give them a common hash tag. [`try_acquire`](LockRequest::try_acquire) makes
    /// only this attempt.
    ///
    /// Otherwise the keys are taken one after the other, sorted, each once. Two callers with the same keys in different
    /// orders therefore never wait for each other. While it waits for one key, the caller holds the keys before it. If
    /// that key is refused, they are released.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock_all(["account:7", "account:3"]).await?;
    /// assert_eq!(guard.keys().map(|key| key.as_str()).collect::<Vec<_>>(), ["account:3", "account:7"]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock_all<K: IntoLockKey>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        LockRequest::new(self.clone(), in_order(keys.into_iter().map(|key| self.key(key))).map(RequestedKeys::All))
    }

    /// Returns the current holder of a key. If several claims share it, returns the one that came first.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey),
    /// [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holder(&self, key: impl IntoLockKey) -> Result<Option<Holder>> {
        self.holder_of(self.key(key)?).await
    }

    /// Like [`holder`](Self::holder), for a key that has its prefix.
    pub(crate) async fn holder_of(&self, key: LockKey) -> Result<Option<Holder>> {
        self.ask("holder", &key, |store| store.holder(key.clone())).await
    }

    /// Returns all current holders of a key: one holder, or all that share it.
    ///
    /// # Errors
    ///
    /// Like [`holder`](Self::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holders(&self, key: impl IntoLockKey) -> Result<Vec<Holder>> {
        let key = self.key(key)?;
        self.ask("holder", &key, |store| store.holders(key.clone())).await
    }

    /// Returns the store's record of a job that has a period: its last run, and whether the next run is overdue. `None`
    /// if it never ran, or if its last run was so long ago that it was forgotten.
    ///
    /// See the example of [`JobRecord`].
    ///
    /// # Errors
    ///
    /// Like [`holder`](Self::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn last_run(&self, key: impl IntoLockKey) -> Result<Option<JobRecord>> {
        let key = self.key(key)?;
        self.ask("last_run", &key, |store| store.last_run(key.clone())).await
    }

    /// Asks every node of the store which claim has a key. It changes nothing. In a quorum, the holder's own renewals
    /// give the lock again to members that have lost it.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let report = locks.sync("lock:user:42").await?;
    /// for node in &report.nodes {
    ///     println!("{}: {:?}", node.node, node.answer);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey). A node that cannot be asked has an error in the
    /// report. If no node answers within 5 s, [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn sync(&self, key: impl IntoLockKey) -> Result<SyncReport> {
        let key = self.key(key)?;
        let engine = self.engine_here()?;
        let (backend, asked) = (Arc::clone(&engine.backend), key.clone());
        let command = Box::pin(async move { Ok(backend.sync(asked).await) });
        engine.send("holder", &key, CONNECT_TIMEOUT, command).await
    }

    /// Returns the prefix of every key of this manager, see [`LockManagerBuilder::key_prefix`].
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.inner.key_prefix
    }

    /// Asks the store about a key, from the keeper and within the time of a command.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        op: &'static str,
        key: &LockKey,
        command: impl FnOnce(Arc<dyn DynBackend>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let engine = self.engine_here()?;
        engine.send(op, key, self.inner.options.command_timeout(), command(Arc::clone(&engine.backend))).await
    }

    /// Returns a key as the store sees it, with the prefix of this manager.
    pub(crate) fn key(&self, key: impl IntoLockKey) -> Result<LockKey> {
        key.into_lock_key()?.with_prefix(&self.inner.key_prefix)
    }

    /// Checks that the store answers.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn ping(&self) -> Result<()> {
        let engine = self.engine_here()?;
        let key = LockKey::new("ping")?;
        let until = engine.clock.now().after(CONNECT_TIMEOUT);
        let command = engine.route(Caller::Async, Arc::clone(&engine.backend).ping());
        engine.bounded("ping", &key, until, command).await
    }

    /// Adds an observer. From now on it gets every event of this manager's locks, and the state of its connections.
    pub fn observe(&self, observer: impl LockObserver) {
        self.engine().observers.add(Arc::new(observer));
    }

    /// Returns the order in which locks were taken inside each other, by families. A family is the label in metrics.
    ///
    /// It watches each acquire that waits inside [`run`](LockRequest::run) or an annotated function. If one family is
    /// taken under another in one place, and the other way round in another place, two callers can wait for each other.
    /// This is found even if no test makes them do so. [`Notice::OrderInverted`](crate::Notice::OrderInverted) reports
    /// each pair once, with both places. Several locks of one family must be taken in ascending order of their keys, as
    /// [`lock_all`](Self::lock_all) does.
    ///
    /// On with the feature `test-util`, otherwise by [`lint_lock_order`](LockManagerBuilder::lint_lock_order).
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder(MemoryStore::new()).lint_lock_order(true).build()?;
    /// let cart = || locks.lock("cart:7").with_label("cart");
    /// let stock = || locks.lock("stock:42").with_label("stock");
    /// cart().run(async |_| stock().await.map(drop)).await?;
    /// locks.lock_order().assert_consistent(); // at the end of a test
    ///
    /// stock().run(async |_| cart().await.map(drop)).await?;
    /// println!("{}", locks.lock_order().inversions()[0]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lock_order(&self) -> LockOrder {
        LockOrder::of(self.inner.origin.order.as_ref())
    }

    /// Returns the engine, unless it stayed with the parent of this forked process.
    pub(crate) fn engine_here(&self) -> Result<&Arc<Engine>> {
        if self.engine().made_in.was_forked() { Err(LockError::forked()) } else { Ok(self.engine()) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.handle.engine
    }

    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        &self.inner.handle
    }

    pub(crate) fn serves_while_stopping(&self) -> bool {
        self.inner.serves_while_stopping
    }

    /// Returns a weak reference to this manager. It does not keep the manager alive.
    pub(crate) fn remember(&self) -> impl FnOnce() -> Option<Self> + Send + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().map(|inner| Self { inner })
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.inner.options
    }

    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.inner.origin
    }

    pub(crate) fn following(&self) -> &Following {
        &self.inner.following
    }

    pub(crate) fn stripings(&self) -> &Stripings {
        &self.inner.stripings
    }
}
