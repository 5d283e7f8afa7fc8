//! The one error type. It has few kinds, and each error says what to do next.

mod engine;
mod help;
mod loss;
#[doc(hidden)]
pub mod web;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::types::key::LockKey;
use crate::types::owner::Holder;

pub use loss::LossReason;

/// A result whose error is a [`LockError`].
pub type Result<T, E = LockError> = std::result::Result<T, E>;

/// The reason why a lock was not acquired, kept or released.
///
/// Match on [`kind`](Self::kind), and print the error for people. It is as large as a pointer and cheap to clone.
///
/// ```
/// use lock_core::LockErrorKind;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// if let Err(error) = locks.lock("report").without_waiting().await {
///     eprintln!("{error}"); // says what to do next
///     assert_eq!(error.kind(), LockErrorKind::Busy);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockError(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: LockErrorKind,
    message: Cow<'static, str>,
    key: Option<LockKey>,
    /// How long the caller waited, for `Timeout`.
    waited: Option<Duration>,
    /// The holder that the caller waited for, for `Timeout` and `Busy`.
    holder: Option<Holder>,
    /// The reason of the loss, for `Lost`.
    reason: Option<LossReason>,
    /// Whether the store certainly did not execute the command, for `Unavailable`.
    not_executed: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of failure of a [`LockError`]. Decide by this.
///
/// ```
/// use lock_core::LockErrorKind;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// match locks.lock("report").await {
///     Ok(guard) => drop(guard),
///     Err(error) => match error.kind() {
///         LockErrorKind::Busy | LockErrorKind::Timeout => println!("somebody else is at it"),
///         LockErrorKind::Unavailable => println!("the store is away, try later"),
///         _ => return Err(error), // a mistake in the program
///     },
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The lock stayed taken for the whole wait.
    Timeout,
    /// The lock is taken and the caller did not want to wait.
    Busy,
    /// The lock was held, and is not held any more.
    Lost,
    /// The store cannot be reached, or cannot serve now. A retry later may help.
    Unavailable,
    /// The wait would never end. The same task already holds this key, or it waits for tasks that wait for it.
    WouldDeadlock,
    /// The key is empty, too long, or has an empty part.
    InvalidKey,
    /// A setting, a credential or the key's type is wrong. A retry does not help.
    Misconfigured,
    /// The attribute has not found an installed manager.
    NotInstalled,
    /// The manager has been shut down.
    ShutDown,
}

impl LockError {
    fn build(kind: LockErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            key: None,
            waited: None,
            holder: None,
            reason: None,
            not_executed: false,
            source: None,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reports a key that cannot name a lock. For implementations of [`LockBackend`](crate::LockBackend).
    #[must_use]
    pub fn invalid_key(message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(LockErrorKind::InvalidKey, message)
    }

    /// Reports an error that a retry cannot fix. For implementations of [`LockBackend`](crate::LockBackend).
    #[must_use]
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(LockErrorKind::Misconfigured, message)
    }

    /// Reports a command that may or may not have been executed, for example after a timeout or a reset. For
    /// implementations of [`LockBackend`](crate::LockBackend).
    #[must_use]
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(LockErrorKind::Unavailable, message)
    }

    /// Reports a command that the store certainly did not execute: it was refused, or never sent. For implementations
    /// of [`LockBackend`](crate::LockBackend).
    #[must_use]
    pub fn not_executed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::build(LockErrorKind::Unavailable, message).edit(|inner| inner.not_executed = true)
    }

    /// Returns the error of an acquire that was not sent, because the release before it failed.
    #[must_use]
    pub fn before_the_acquire(self) -> Self {
        let text =
            format!("the lock was not requested, because the previous claim could not be ended: {}", self.0.message);
        self.edit(|inner| inner.message = text.into())
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// Attaches the key of the failure, unless one is attached already.
    #[must_use]
    pub fn with_key(self, key: &LockKey) -> Self {
        if self.0.key.is_some() {
            return self;
        }
        self.edit(|inner| inner.key = Some(key.clone()))
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        self.0.kind
    }

    /// Returns the key of the failure, if it concerns one.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// Returns how long the caller waited, for [`LockErrorKind::Timeout`].
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.0.waited
    }

    /// Returns the holder that the caller waited for, if it was seen. For [`LockErrorKind::Timeout`] and
    /// [`LockErrorKind::Busy`].
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// Returns why the lock was lost, for [`LockErrorKind::Lost`].
    #[must_use]
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.0.reason
    }

    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), LockErrorKind::Timeout | LockErrorKind::Busy | LockErrorKind::Unavailable)
    }

    /// Returns whether the store may have executed the failed command.
    #[doc(hidden)]
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.kind() == LockErrorKind::Unavailable && !self.0.not_executed
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.key, self.kind()) {
            (Some(key), LockErrorKind::InvalidKey) => write!(f, "invalid lock key {key:?}: {}", self.0.message),
            (Some(key), _) => write!(f, "lock {key:?}: {}", self.0.message),
            (None, _) => f.write_str(&self.0.message),
        }
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockError({:?}: {self}", self.kind())?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        f.write_str(")")
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

/// Compares kind, key and message, so that a test can say which error it expects.
impl PartialEq for LockError {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.0.key == other.0.key && self.0.message == other.0.message
    }
}
