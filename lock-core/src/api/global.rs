//! Finds the manager for the attribute: first the task scope, then the thread default, then the installed manager.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::api::manager::LockManager;
use lock_store::types::error::{LockError, Result};

static INSTALLED: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockManager;
}

thread_local! {
    static DEFAULTS: RefCell<Vec<LockManager>> = const { RefCell::new(Vec::new()) };
}

impl LockManager {
    /// Makes this the manager that the attribute finds anywhere in the process. The caller keeps its own handle.
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`] if a manager is installed already. That manager stays.
    pub fn install(&self) -> Result<(), AlreadyInstalled> {
        INSTALLED.set(self.clone()).map_err(|_| AlreadyInstalled { _private: () })
    }

    /// Makes this the manager that the attribute finds on this thread, until the guard is dropped.
    ///
    /// For tests. It also reaches tasks that a test spawns on a current-thread runtime. It does not reach the worker
    /// threads of a multi-thread runtime: use [`scope`](Self::scope) or `client = …` there.
    pub fn set_default(&self) -> DefaultGuard {
        DEFAULTS.with_borrow_mut(|defaults| defaults.push(self.clone()));
        DefaultGuard { _thread: PhantomData }
    }

    /// Makes this the manager that the attribute finds while `future` runs, on any executor.
    ///
    /// Tasks that the future spawns do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As safe as `future`.
    pub async fn scope<T>(&self, future: impl Future<Output = T>) -> T {
        SCOPED.scope(self.clone(), future).await
    }

    /// Returns the manager that the attribute would use here.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::NotInstalled`](crate::LockErrorKind::NotInstalled) if no manager is found.
    pub fn try_current() -> Result<Self> {
        if let Ok(manager) = SCOPED.try_with(Clone::clone) {
            return Ok(manager);
        }
        let default = DEFAULTS.try_with(|defaults| defaults.borrow().last().cloned()).ok().flatten();
        default.or_else(|| INSTALLED.get().cloned()).ok_or_else(LockError::not_installed)
    }
}

/// Restores the thread's previous default manager when it is dropped.
///
/// ```
/// use lock_core::LockManager;
///
/// let locks = LockManager::in_memory();
/// let until_the_end_of_this_test = locks.set_default();
/// assert!(LockManager::try_current().is_ok());
/// # drop(until_the_end_of_this_test);
/// ```
#[must_use = "the default ends when the guard is dropped"]
pub struct DefaultGuard {
    /// Binds the guard to the thread whose default it set.
    _thread: PhantomData<*const ()>,
}

impl Drop for DefaultGuard {
    fn drop(&mut self) {
        let _ = DEFAULTS.try_with(|defaults| defaults.borrow_mut().pop());
    }
}

impl fmt::Debug for DefaultGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DefaultGuard")
    }
}

/// The error of a second installation. The first manager stays.
///
/// ```
/// use lock_core::LockManager;
///
/// LockManager::in_memory().install()?;
/// assert!(LockManager::in_memory().install().is_err());
/// # Ok::<(), lock_core::AlreadyInstalled>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlreadyInstalled {
    _private: (),
}

impl fmt::Display for AlreadyInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a lock manager is already installed and cannot be replaced; install once at start-up, use scope or set_default in \
             tests",
        )
    }
}

impl std::error::Error for AlreadyInstalled {}

impl From<AlreadyInstalled> for LockError {
    /// Lets `locks.install()?` be used in a function that returns a `LockError`.
    fn from(error: AlreadyInstalled) -> Self {
        Self::misconfigured(error.to_string())
    }
}
