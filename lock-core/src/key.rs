//! Names of locks: the rendered key that Redis sees, and the label that metrics see.

mod builder;
mod label;

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::sync::Arc;

use crate::error::{LockError, Result};

pub use builder::KeyBuilder;
pub use label::LockLabel;

/// The longest rendered key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// The rendered name of one lock, exactly as it is sent to the store.
///
/// A key may carry the [`LockLabel`] of the template it was rendered from. Two keys are equal when
/// their text is equal; the label takes no part.
///
/// ```
/// use lock_core::LockKey;
///
/// let key = LockKey::new("lock:user:42")?;
/// assert_eq!(key.as_str(), "lock:user:42");
/// assert!(LockKey::new("").is_err());
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone)]
pub struct LockKey {
    text: Arc<str>,
    /// Shared, since every lock keeps several copies of its key.
    label: Option<Arc<LockLabel>>,
}

impl LockKey {
    /// Checks a key that is already complete.
    ///
    /// Text that comes from users belongs in a [`KeyBuilder::segment`] (or in `lock_key!`), which encodes
    /// what would change the key's meaning: `("a:b")` and `("a", "b")` must never become the same lock.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey) if the key is empty or
    /// longer than [`MAX_KEY_BYTES`].
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
        Ok(Self { text: text.into(), label: None })
    }

    /// Puts a prefix before the key. The label stays as it is.
    pub(crate) fn with_prefix(self, prefix: &str) -> Result<Self> {
        if prefix.is_empty() {
            return Ok(self);
        }
        Ok(Self { label: self.label, ..Self::new(format!("{prefix}{}", self.text))? })
    }

    /// Returns the key as the store sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the template label this key was rendered from, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&LockLabel> {
        self.label.as_deref()
    }

    /// Attaches the metric label of this key.
    #[must_use]
    pub fn with_label(mut self, label: LockLabel) -> Self {
        self.label = Some(Arc::new(label));
        self
    }
}

impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LockKey {}

impl std::hash::Hash for LockKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for LockKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Everything [`LockManager::lock`](crate::LockManager::lock) takes as a key.
///
/// Implemented for strings, for [`LockKey`], and for the `Result` that `lock_key!` gives. An
/// invalid key is reported by `acquire`, so the common call needs no `?` of its own. Sealed.
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
