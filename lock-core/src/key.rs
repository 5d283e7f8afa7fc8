//! Names of locks: the rendered key that Redis sees, and the label that metrics see.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use crate::error::{LockError, Result};

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
    /// Text that comes from users belongs in a [`KeyBuilder::segment`] (or in `lock_key!`), which
    /// escapes it: `("a:b")` and `("a", "b")` must never become the same lock.
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

/// Renders a key from a template: literal text as written, values percent-encoded.
///
/// ```
/// use lock_core::KeyBuilder;
///
/// let key = KeyBuilder::new("lock:<kind>:<id>")
///     .text("lock:")
///     .segment("kind", "a:b")
///     .text(":")
///     .segment("id", 7)
///     .finish()?;
/// assert_eq!(key.as_str(), "lock:a%3Ab:7");
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Debug)]
pub struct KeyBuilder {
    text: String,
    label: LockLabel,
    /// The first segment that rendered to nothing.
    empty_segment: Option<&'static str>,
}

impl KeyBuilder {
    /// Starts a key of the given template, which becomes its metric label.
    #[must_use]
    pub fn new(template: &'static str) -> Self {
        Self {
            text: String::with_capacity(template.len() + 16),
            label: LockLabel::from_static(template),
            empty_segment: None,
        }
    }

    /// Appends literal text of the template, unchanged.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends a value, percent-encoded outside `[A-Za-z0-9._~-]` (RFC 3986, unreserved).
    ///
    /// `name` is what the template calls the value; it appears in the error for an empty one.
    #[must_use]
    pub fn segment(mut self, name: &'static str, value: impl Display) -> Self {
        let before = self.text.len();
        // The sink never fails; a `Display` that reports an error leaves what it wrote so far.
        let _ = write!(Escape(&mut self.text), "{value}");
        if self.text.len() == before && self.empty_segment.is_none() {
            self.empty_segment = Some(name);
        }
        self
    }

    /// Checks the rendered key.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`](crate::LockErrorKind::InvalidKey) if a value rendered to
    /// nothing (a per-user lock would silently become a global one), or as in [`LockKey::new`].
    pub fn finish(self) -> Result<LockKey> {
        if let Some(name) = self.empty_segment {
            return Err(LockError::invalid_key(format!(
                "<{name}> in the key template {:?} is empty, so unrelated callers would share one lock; \
                 refuse the empty value before locking",
                self.label.as_str(),
            )));
        }
        Ok(LockKey::new(self.text)?.with_label(self.label))
    }
}

/// Percent-encodes what is written through it.
struct Escape<'a>(&'a mut String);

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, value: &str) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-') {
                self.0.push(char::from(byte));
            } else {
                self.0.push('%');
                self.0.push(char::from(HEX[usize::from(byte >> 4)]));
                self.0.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
        Ok(())
    }
}

/// The low-cardinality name of a family of locks: a key template, a declared name, or a call site.
///
/// This is the value of the `lock` label of every metric. It never contains a rendered key, so the
/// number of series is bounded by the number of call sites.
#[derive(Clone)]
pub struct LockLabel(Repr);

#[derive(Clone)]
enum Repr {
    Static(&'static str),
    Shared(Arc<str>),
}

impl LockLabel {
    /// Names a family of locks. Use a constant or a template, never a rendered key.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(match name.into() {
            Cow::Borrowed(name) => Repr::Static(name),
            Cow::Owned(name) => Repr::Shared(name.into()),
        })
    }

    /// Names a family of locks by a constant.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        Self(Repr::Static(name))
    }

    /// Returns the label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Static(name) => name,
            Repr::Shared(name) => name,
        }
    }
}

impl PartialEq for LockLabel {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LockLabel {}

impl std::hash::Hash for LockLabel {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Display for LockLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<&'static str> for LockLabel {
    fn from(name: &'static str) -> Self {
        Self::from_static(name)
    }
}

#[cfg(test)]
mod tests;
