//! The one error type. It has few kinds, and each error says what to do next.

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
use crate::types::owner::{Holder, Standing};

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

/// The advice for a key without an expiry, whose client may have ended.
const NEVER_FREED: &str = "nothing frees it by itself: see who wrote it with `lockctl why KEY`";

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

    #[doc(hidden)]
    pub fn timeout(waited: Duration, holder: Option<Holder>) -> Self {
        let message = match &holder {
            Some(Holder { doubt: Some(doubt), .. }) => format!("not granted after waiting {waited:.3?}: {doubt}"),
            Some(holder) => format!(
                "still taken after waiting {waited:.3?}, {}; {}",
                holder.in_the_way("held"),
                match holder.standing() {
                    Standing::Kept => "wait for that long, or ask again then",
                    Standing::Endless => NEVER_FREED,
                    Standing::Pinned => "no lease and no release frees it before that has ended",
                    Standing::Leased => {
                        "wait longer, hold it for less time, or look for a holder that waits for this caller"
                    }
                },
            ),
            // The caller never got to the store: it waited behind other callers, which may not have had an answer
            // either.
            None => format!(
                "not granted after waiting {waited:.3?} behind other callers, and nobody was seen to have it; wait longer, or \
                 check that the store answers",
            ),
        };
        Self::timed_out(message, waited, holder)
    }

    /// Ends the wait for some of the permits of a semaphore.
    pub(crate) fn no_permits(wanted: &dyn fmt::Display, waited: Duration, holder: Option<Holder>) -> Self {
        let who = holder.as_ref().map_or_else(String::new, |holder| format!(", others {}", holder.in_the_way("taken")));
        let message = format!(
            "waited {waited:.3?} in vain for {wanted}{who}; wait longer, hold them for less time, or ask for more with one number \
             in all processes (`lockctl show` tells who has how many)",
        );
        Self::timed_out(message, waited, holder)
    }

    /// Adds which locks the caller holds while it waits.
    #[doc(hidden)]
    pub fn while_holding(self, held: &str) -> Self {
        self.edit(|inner| inner.message = format!("{}; this task holds {held} meanwhile", inner.message).into())
    }

    fn timed_out(message: String, waited: Duration, holder: Option<Holder>) -> Self {
        Self::build(LockErrorKind::Timeout, message).edit(|inner| {
            inner.waited = Some(waited);
            inner.holder = holder;
        })
    }

    #[doc(hidden)]
    pub fn busy(holder: Option<Holder>) -> Self {
        let taken = match &holder {
            Some(Holder { doubt: Some(doubt), .. }) => format!("not granted: {doubt}"),
            Some(holder) => holder.in_the_way("taken"),
            None => "taken".to_owned(),
        };
        let advice = match holder.as_ref().map(Holder::standing) {
            Some(Standing::Endless) => NEVER_FREED,
            Some(Standing::Pinned) => "set a wait that is longer than what keeps it",
            _ => "set a wait to queue for it",
        };
        Self::build(LockErrorKind::Busy, format!("{taken}; {advice}")).edit(|inner| inner.holder = holder)
    }

    #[doc(hidden)]
    pub fn lost(reason: LossReason) -> Self {
        // After a shutdown, another acquire would fail too.
        let again = if reason == LossReason::ShutDown { "" } else { " and acquire again" };
        Self::build(LockErrorKind::Lost, format!("lost: {reason}; stop writing under it{again}"))
            .edit(|inner| inner.reason = Some(reason))
    }

    #[doc(hidden)]
    pub fn would_deadlock(key: &LockKey) -> Self {
        let message = match key.stripe() {
            None => {
                "this task already holds it, so waiting would never end; pass the guard down, or make the inner call reentrant"
            }
            Some(_) => {
                "this task already holds this stripe, perhaps for another id, so waiting would never end; take all ids \
                 together with lock_all, or make the inner call reentrant"
            }
        };
        Self::build(LockErrorKind::WouldDeadlock, message)
    }

    /// Ends the wait of a task in a cycle. `deadlock` describes the cycle.
    #[doc(hidden)]
    pub fn deadlock(deadlock: &dyn fmt::Display) -> Self {
        Self::build(
            LockErrorKind::WouldDeadlock,
            format!(
                "{deadlock}; this task gives way, since its lock is the youngest: let go of it and try again, and take these \
                 locks in one order everywhere, or together with lock_all"
            ),
        )
    }

    #[doc(hidden)]
    pub fn no_upgrade() -> Self {
        Self::build(
            LockErrorKind::WouldDeadlock,
            "this task already shares it, and waiting for more would never end if two callers did it at once; take the \
             stronger lock first, and downgrade it when reading is enough",
        )
    }

    #[doc(hidden)]
    pub fn not_installed() -> Self {
        Self::build(
            LockErrorKind::NotInstalled,
            "no lock manager is installed here; call LockManager::connect(url).await?.install() at start-up, \
             LockManager::scope or set_default in tests, or name one with client = …",
        )
    }

    #[doc(hidden)]
    pub fn forked() -> Self {
        Self::build(
            LockErrorKind::Misconfigured,
            "this process was forked after its lock manager was made, and connections and watchdog stayed with the \
             parent; connect a new one here",
        )
    }

    /// Refuses to block. `instead` is the function to call instead.
    #[doc(hidden)]
    pub fn driven_here(instead: &str) -> Self {
        Self::build(
            LockErrorKind::Misconfigured,
            format!("this manager is driven by the current runtime, which a blocking call would stop; use {instead}"),
        )
    }

    #[doc(hidden)]
    pub fn no_stripes() -> Self {
        Self::build(
            LockErrorKind::InvalidKey,
            "every stripe is left out, so nothing could be locked; ask only while except() leaves one",
        )
    }

    #[doc(hidden)]
    pub fn no_keys() -> Self {
        Self::build(LockErrorKind::InvalidKey, "no key was given, so nothing would be locked; name at least one")
    }

    #[doc(hidden)]
    pub fn shut_down() -> Self {
        Self::build(
            LockErrorKind::ShutDown,
            "the lock manager was shut down; acquire before shutdown, or connect a new one",
        )
    }

    /// Refuses new work while accepted work continues.
    #[doc(hidden)]
    pub fn stopping() -> Self {
        Self::build(
            LockErrorKind::ShutDown,
            "the lock manager is stopping and takes no new work; for work that was accepted before, build it with \
             serve_while_stopping()",
        )
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
    pub(crate) fn before_the_acquire(self) -> Self {
        let text =
            format!("the lock was not asked for, since the claim before it could not be ended: {}", self.0.message);
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
