//! The handle that services keep: it connects to a store and makes requests.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::all::in_order;
use crate::backend::{DynBackend, LockBackend, SyncReport};
use crate::engine::{Caller, Engine};
use crate::error::{LockError, Result};
use crate::event::{LockObserver, Observers};
use crate::event_context::Origin;
use crate::following::Following;
use crate::handle::EngineHandle;
use crate::keeper;
use crate::key::LockKey;
use crate::lock::{LockRequest, RequestedKeys};
use crate::memory::MemoryStore;
use crate::naming::IntoLockKey;
use crate::options::{HandoffLimits, LockOptions, setters};
use crate::order::LockOrder;
use crate::owner::Holder;
use crate::prefix::check_key_prefix;
use crate::stripe::Stripings;

/// More passes than a grant has numbers are not possible: the first holder has one too.
const MAX_PASSES: u32 = 127;

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
/// The last handle, or the last guard if it is dropped later, waits up to 250 ms for releases that are
/// still on their way, so that a guard dropped right before `main` returns does not stay locked until
/// its lease ends.
///
/// A manager is of the process in which it was made: in a forked child every call of it is an error, and guards do
/// nothing there. Connect a new one in the child.
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
    /// What comes before every key. Empty for none.
    key_prefix: Box<str>,
    origin: Arc<Origin>,
    stripings: Stripings,
    following: Following,
}

impl LockManager {
    /// Creates a manager with a memory store of its own, which nobody else shares.
    ///
    /// # Panics
    ///
    /// If the system refuses the keeper's thread.
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

    /// Starts to build a manager over a store that others use too. The managers of one store exclude each other
    /// as processes do.
    pub fn builder_shared(store: Arc<impl LockBackend>) -> LockManagerBuilder {
        LockManagerBuilder {
            backend: store,
            options: LockOptions::default(),
            key_prefix: None,
            observers: Observers::new(),
            host: None,
            store_name: None,
            handoff: HandoffLimits { passes: 64, slice: Duration::from_millis(10) },
            on_current_runtime: false,
            lint_lock_order: cfg!(feature = "test-util"),
        }
    }

    /// Asks for the lock of a key. Nothing is taken until the request is awaited.
    #[track_caller]
    pub fn lock(&self, key: impl IntoLockKey) -> LockRequest {
        LockRequest::new(self.clone(), self.key(key).map(RequestedKeys::One))
    }

    /// Asks for the locks of several keys at once: all or nothing, under one budget.
    ///
    /// The first attempt takes all of them in one step of the store, or none. Redis does so for up
    /// to 50 keys, which in a cluster must share a slot: give them a common hash tag. With
    /// [`try_acquire`](LockRequest::try_acquire) that is all.
    ///
    /// Otherwise the keys are taken one after the other, sorted and each once, so that two callers
    /// with the same keys in different orders never wait for each other. While it waits for one key,
    /// the caller holds those before it; if that is refused, they are given back.
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

    /// Returns who holds a key now.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey), [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) or
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn holder(&self, key: impl IntoLockKey) -> Result<Option<Holder>> {
        self.holder_of(self.key(key)?).await
    }

    /// As [`holder`](Self::holder), for a key that has its prefix.
    pub(crate) async fn holder_of(&self, key: LockKey) -> Result<Option<Holder>> {
        let engine = self.engine_here()?;
        let until = engine.clock.now().after(self.inner.options.command_timeout());
        let command = engine.route(Caller::Async, Arc::clone(&engine.backend).holder_dyn(key.clone()));
        engine.bounded("holder", &key, until, command).await.map_err(|error| error.with_key(&key))
    }

    /// Asks every node of the store who holds a key. It changes nothing: of a quorum, whoever holds a lock has it
    /// given again to the members that lost it.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let report = locks.sync("lock:user:42").await?;
    /// for node in &report.nodes {
    ///     println!("{}: {:?}", node.node, node.holder);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey). A node that cannot be asked says so in the
    /// report; with none of them within 5 s, [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn sync(&self, key: impl IntoLockKey) -> Result<SyncReport> {
        let key = self.key(key)?;
        let engine = self.engine_here()?;
        let until = engine.clock.now().after(CONNECT_TIMEOUT);
        let backend = Arc::clone(&engine.backend);
        let asked = key.clone();
        let command = engine.route(Caller::Async, Box::pin(async move { Ok(backend.sync_dyn(asked).await) }));
        engine.bounded("holder", &key, until, command).await.map_err(|error| error.with_key(&key))
    }

    /// Returns what comes before every key of this manager, see [`LockManagerBuilder::key_prefix`].
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.inner.key_prefix
    }

    /// Returns a key as the store sees it: with the prefix of this manager before it.
    pub(crate) fn key(&self, key: impl IntoLockKey) -> Result<LockKey> {
        key.into_lock_key()?.with_prefix(&self.inner.key_prefix)
    }

    /// Checks that the store answers.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn ping(&self) -> Result<()> {
        let engine = self.engine_here()?;
        let key = LockKey::new("ping")?;
        let until = engine.clock.now().after(CONNECT_TIMEOUT);
        let command = engine.route(Caller::Async, Arc::clone(&engine.backend).ping_dyn());
        engine.bounded("ping", &key, until, command).await
    }

    /// Adds an observer, which from now on gets every event of this manager's locks and the state of its
    /// connections.
    pub fn observe(&self, observer: impl LockObserver) {
        self.engine().observers.add(Arc::new(observer));
    }

    /// Returns the order in which locks were taken inside each other, by families: the labels that metrics see.
    ///
    /// It watches each acquire that waits inside [`run`](LockRequest::run) or an annotated function. If one family is
    /// taken under another here and the other way round there, two callers can wait for each other, although no test
    /// has them do so: [`Notice::OrderInverted`](crate::Notice::OrderInverted) says so once for each pair, with both
    /// places. Several locks of one family must be taken in ascending order of their keys, as
    /// [`lock_all`](Self::lock_all) does.
    ///
    /// On with the feature `test-util`, else by [`lint_lock_order`](LockManagerBuilder::lint_lock_order).
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

    /// Returns the engine, unless it stayed with the parent of this process.
    pub(crate) fn engine_here(&self) -> Result<&Arc<Engine>> {
        if self.engine().birthplace.is_left() { Err(LockError::forked()) } else { Ok(self.engine()) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.handle.engine
    }

    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        &self.inner.handle
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

/// Puts a [`LockManager`] together.
///
/// ```
/// use std::time::Duration;
/// use lock_core::{LockManager, LockOptions, MemoryStore};
///
/// let options = LockOptions::default().with_ttl(Duration::from_secs(10)).with_wait(Duration::from_millis(500));
/// let locks = LockManager::builder(MemoryStore::new()).options(options).build()?;
/// # drop(locks);
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
#[derive(Debug)]
pub struct LockManagerBuilder {
    backend: Arc<dyn DynBackend>,
    options: LockOptions,
    key_prefix: Option<String>,
    observers: Observers,
    host: Option<Arc<str>>,
    store_name: Option<Arc<str>>,
    handoff: HandoffLimits,
    on_current_runtime: bool,
    lint_lock_order: bool,
}

setters!(LockManagerBuilder, options);

impl LockManagerBuilder {
    /// Limits how often a lock passes directly between callers of this process before other
    /// processes get their turn. Zero turns hand-offs off. Default 64, at most 127.
    pub fn handoff_limit(mut self, passes: u32) -> Self {
        self.handoff.passes = passes.min(MAX_PASSES);
        self
    }

    /// Limits for how long a lock passes directly between callers of this process before other
    /// processes get their turn. A quarter of the ttl is the limit in any case. Default 10 ms.
    pub fn handoff_slice(mut self, slice: Duration) -> Self {
        self.handoff.slice = slice;
        self
    }

    /// Sets a namespace: what comes before every key of this manager, such as `prod:` or `prod-eu:`.
    ///
    /// Managers with different prefixes never share a key, so several environments can share a store. A manager
    /// without a prefix locks the key as given, even `prod:x`. Metrics are unaffected: their labels are
    /// templates, without prefix.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// Sets all defaults at once.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// Adds an observer.
    pub fn observer(self, observer: impl LockObserver) -> Self {
        self.observers.add(Arc::new(observer));
        self
    }

    /// Sets the name by which others see this host. Default: the system's host name.
    pub fn host(mut self, host: impl Into<Arc<str>>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Names the store for metrics, so that processes which reach it by different addresses agree. Default:
    /// the address in its URL.
    pub fn store_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.store_name = Some(name.into());
        self
    }

    /// Watches the order in which locks are taken inside each other: [`LockManager::lock_order`]. Default: only with the
    /// feature `test-util`.
    ///
    /// It costs a look at a table for each acquire under another lock, and nothing else.
    pub fn lint_lock_order(mut self, on: bool) -> Self {
        self.lint_lock_order = on;
        self
    }

    /// Drives everything on the current tokio runtime and its clock, instead of on a thread of its own.
    ///
    /// With `tokio::time::pause` this gives virtual time: an hour of watchdog passes in a
    /// millisecond, the same way each run. For tests only: the lock then dies with the runtime, and
    /// blocking calls are refused. Without it, a paused runtime fires its own time-outs at once
    /// while the keeper's thread lives in real time.
    pub fn drive_on_current_runtime(mut self) -> Self {
        self.on_current_runtime = true;
        self
    }

    /// Builds the manager and starts its keeper. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the defaults contradict each other, or if the keeper cannot be
    /// started.
    pub fn build(self) -> Result<LockManager> {
        self.options.validate()?;
        let key_prefix = self.key_prefix.unwrap_or_default();
        if !key_prefix.is_empty() {
            check_key_prefix(&key_prefix)?;
        }
        let observers = Arc::new(self.observers);
        let host = self.host.unwrap_or_else(host_name);
        let store = self.store_name.unwrap_or_else(|| self.backend.node_dyn(0).into());
        let handle = if self.on_current_runtime {
            keeper::start_on_current_runtime(self.backend, observers, self.handoff)?
        } else {
            keeper::start(self.backend, observers, self.handoff)?
        };
        let observers = Arc::clone(&handle.engine.observers);
        let birthplace = handle.engine.birthplace.clone();
        let order = self.lint_lock_order.then(Arc::default);
        let origin =
            Arc::new(Origin { host, pid: std::process::id(), store, observers, birthplace, seen_as: None, order });
        Ok(LockManager {
            inner: Arc::new(Inner {
                handle,
                options: self.options,
                key_prefix: key_prefix.into(),
                origin,
                stripings: Stripings::default(),
                following: Following::default(),
            }),
        })
    }
}

fn host_name() -> Arc<str> {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned()).into();
}
