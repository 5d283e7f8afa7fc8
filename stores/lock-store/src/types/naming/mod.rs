//! Makes the name of a lock from checked text, rendered templates, and every type that converts to it.

mod builder;
pub mod prefix;
pub mod typos;

use std::borrow::Cow;

use crate::types::error::{LockError, Result};
use crate::types::key::LockKey;

pub use builder::KeyBuilder;

/// The longest rendered key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

impl LockKey {
    /// Checks a key that is already complete.
    ///
    /// Put text that comes from users into a [`KeyBuilder::segment`] (or into `lock_key!`). It encodes the characters
    /// that could change the key's meaning: `("a:b")` and `("a", "b")` must never become the same lock.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey) if the key is empty or longer than
    /// [`MAX_KEY_BYTES`].
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(LockError::invalid_key(
                "the lock key is empty, so every caller would share one lock; name what is locked",
            ));
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(LockError::invalid_key(format!(
                "the lock key has {} bytes and the limit is {MAX_KEY_BYTES}; use a shorter identifier or a hash of it \
                 (key starts with {:?})",
                text.len(),
                text.chars().take(40).collect::<String>(),
            )));
        }
        Ok(Self::checked(text))
    }

    /// Appends a suffix to the key. The label stays the same.
    #[doc(hidden)]
    pub fn with_suffix(self, suffix: &str) -> Result<Self> {
        Ok(Self::new(format!("{self}{suffix}"))?.with_label_of(&self))
    }

    /// Puts a prefix before the key. The label stays the same.
    #[doc(hidden)]
    pub fn with_prefix(self, prefix: &str) -> Result<Self> {
        if prefix.is_empty() {
            return Ok(self);
        }
        let prefixed = Self::new(format!("{prefix}{self}"))?;
        Ok(prefixed.with_label_of(&self))
    }
}

/// The keys of a request.
#[derive(Clone, Debug)]
pub enum RequestedKeys {
    One(LockKey),
    /// Sorted, each once.
    All(Vec<LockKey>),
}

impl RequestedKeys {
    #[doc(hidden)]
    #[must_use]
    pub fn as_slice(&self) -> &[LockKey] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::All(keys) => keys,
        }
    }
}

/// A type that `LockManager::lock` takes as a key.
///
/// Implemented for strings, for [`LockKey`], and for the `Result` that `lock_key!` returns. `acquire` reports an
/// invalid key, so the common call needs no `?` of its own. Sealed.
///
/// ```
/// use lock_core::LockKey;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// locks.lock("report").await?;
/// locks.lock(format!("report:{}", 7)).await?;
/// locks.lock(LockKey::new("report")?).await?;
/// # Ok(())
/// # }
/// ```
pub trait IntoLockKey: sealed::Sealed {
    /// Checks the key.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey), see [`LockKey::new`].
    fn into_lock_key(self) -> Result<LockKey>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! into_lock_key {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl IntoLockKey for $type {
            fn into_lock_key(self) -> Result<LockKey> {
                LockKey::new(self)
            }
        }
    )*};
}

into_lock_key!(&str, String, &String, Cow<'_, str>);

impl sealed::Sealed for LockKey {}
impl IntoLockKey for LockKey {
    fn into_lock_key(self) -> Result<LockKey> {
        Ok(self)
    }
}

impl sealed::Sealed for &LockKey {}
impl IntoLockKey for &LockKey {
    fn into_lock_key(self) -> Result<LockKey> {
        Ok(self.clone())
    }
}

impl sealed::Sealed for Result<LockKey> {}
impl IntoLockKey for Result<LockKey> {
    fn into_lock_key(self) -> Result<LockKey> {
        self
    }
}

#[cfg(test)]
mod tests;
