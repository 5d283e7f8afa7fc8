//! Makes a manager from a store and options.

use std::sync::Arc;
use std::time::Duration;

use crate::api::manager::{Inner, LockManager};
use crate::api::stripe::Stripings;
use crate::engine::keeper;
use crate::engine::report::event_context::Origin;
use crate::engine::watch::following::Following;
use lock_store::contract::backend::DynBackend;
use lock_store::contract::event::{LockObserver, Notice, Observers};
use lock_store::types::error::Result;
use lock_store::types::naming::prefix::check_key_prefix;
use lock_store::types::options::{HandoffLimits, LockOptions, setters};

/// Builds a [`LockManager`].
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
    pub(super) backend: Arc<dyn DynBackend>,
    pub(super) options: LockOptions,
    pub(super) key_prefix: Option<String>,
    pub(super) observers: Observers,
    pub(super) host: Option<Arc<str>>,
    pub(super) store_name: Option<Arc<str>>,
    pub(super) handoff: HandoffLimits,
    pub(super) on_current_runtime: bool,
    pub(super) serves_while_stopping: bool,
    pub(super) strict: bool,
    pub(super) lint_lock_order: bool,
}

setters!(LockManagerBuilder, options);

impl LockManagerBuilder {
    /// Limits how often a lock passes directly between callers of this process before other processes get their turn.
    /// Zero turns hand-offs off. Default 127, which is the most. For locks that are held long,
    /// [`handoff_slice`](Self::handoff_slice) is the limit.
    pub fn handoff_limit(mut self, passes: u32) -> Self {
        self.handoff.passes = passes.min(HandoffLimits::MOST);
        self
    }

    /// Limits how long a lock passes directly between callers of this process before other processes get their turn. A
    /// quarter of the ttl is always a limit too. Default 10 ms.
    pub fn handoff_slice(mut self, slice: Duration) -> Self {
        self.handoff.slice = slice;
        self
    }

    /// Sets a namespace: the prefix of every key of this manager, for example `prod:` or `prod-eu:`.
    ///
    /// Managers with different prefixes never share a key, so several environments can share a store. A manager without
    /// a prefix locks the key as given, even `prod:x`. Metrics do not change: their labels are templates, without the
    /// prefix.
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

    /// Sets the name by which other processes see this host. Default: the system's host name.
    pub fn host(mut self, host: impl Into<Arc<str>>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Names the store in metrics. Processes that reach it by different addresses then agree. Processes that reach
    /// different stores by the same address then differ. Default: the address in its URL.
    ///
    /// With a [`key_prefix`](Self::key_prefix), the metrics show `name#prefix`: the same key in two namespaces means
    /// two locks.
    pub fn store_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.store_name = Some(name.into());
        self
    }

    /// Watches the order in which locks are taken inside each other: [`LockManager::lock_order`]. Default: only with
    /// the feature `test-util`.
    ///
    /// It costs one table lookup for each acquire under another lock.
    pub fn lint_lock_order(mut self, on: bool) -> Self {
        self.lint_lock_order = on;
        self
    }

    /// Makes [`connect`](Self::connect) refuse a store that would not grant a lock now. By default that is a warning,
    /// and only a store that does not answer is refused. A service can then start while its store fails over.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Grants locks while this manager [drains](LockManager::drain), until the drain's time is nearly up. For services
    /// whose work was accepted before the stop, and would fail without its locks. Default: only for requests in a
    /// [`LockLayer`](crate::LockLayer), and for locks inside of a held lock.
    ///
    /// Stop accepting new work by [`stopping`](LockManager::stopping). New [elections](LockManager::elect) are refused.
    pub fn serve_while_stopping(mut self) -> Self {
        self.serves_while_stopping = true;
        self
    }

    /// Drives everything on the current tokio runtime and its clock, instead of on a thread of its own.
    ///
    /// With `tokio::time::pause`, this gives virtual time: an hour of watchdog passes in a millisecond, in the same way
    /// in each run. For tests only: the lock ends with the runtime, and blocking calls are refused. Without this, a
    /// paused runtime fires its own timeouts at once while the keeper's thread runs in real time.
    pub fn drive_on_current_runtime(mut self) -> Self {
        self.on_current_runtime = true;
        self
    }

    /// Builds the manager and starts its keeper. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the defaults contradict each other, or
    /// if the keeper cannot be started.
    pub fn build(self) -> Result<LockManager> {
        self.options.validate()?;
        let key_prefix = self.key_prefix.unwrap_or_default();
        if !key_prefix.is_empty() {
            check_key_prefix(&key_prefix)?;
        }
        let observers = Arc::new(self.observers);
        let host = self.host.unwrap_or_else(host_name);
        let node: Arc<str> = self.backend.node(0).into();
        let store = store_in(self.store_name.unwrap_or_else(|| Arc::clone(&node)), &key_prefix);
        let handle = if self.on_current_runtime {
            keeper::start_on_current_runtime(self.backend, observers, self.handoff)?
        } else {
            keeper::start(self.backend, observers, self.handoff)?
        };
        let observers = Arc::clone(&handle.engine.observers);
        observers.notice(&Notice::Store { store: &store, node: &node });
        let made_in = handle.engine.made_in.clone();
        let order = self.lint_lock_order.then(Arc::default);
        let origin =
            Arc::new(Origin { host, pid: std::process::id(), store, observers, made_in, seen_as: None, order });
        Ok(LockManager {
            inner: Arc::new(Inner {
                handle,
                options: self.options,
                key_prefix: key_prefix.into(),
                serves_while_stopping: self.serves_while_stopping,
                origin,
                stripings: Stripings::default(),
                following: Following::default(),
            }),
        })
    }
}

/// Returns the name of a namespace of a store, as metrics show it.
pub(crate) fn store_in(store: Arc<str>, key_prefix: &str) -> Arc<str> {
    if key_prefix.is_empty() { store } else { format!("{store}#{key_prefix}").into() }
}

fn host_name() -> Arc<str> {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned()).into();
}
