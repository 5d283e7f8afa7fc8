//! Names of locks: the rendered key for the store, and the label for metrics.

mod label;

use std::fmt::{self, Display};
use std::sync::Arc;

pub use label::LockLabel;

/// The rendered name of one lock, exactly as it is sent to the store.
///
/// A key may carry the [`LockLabel`] of the template that it was rendered from. Two keys are equal if their text is
/// equal; the label is not compared.
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
    /// Shared, because every lock keeps several copies of its key.
    about: Option<Arc<About>>,
}

/// The properties of a key besides its text.
#[derive(Clone, Default)]
struct About {
    label: Option<LockLabel>,
    /// Which stripe of a set it is.
    stripe: Option<u32>,
}

impl LockKey {
    /// Takes over the label and stripe of another key.
    pub(crate) fn with_label_of(self, other: &Self) -> Self {
        Self { about: other.about.clone(), ..self }
    }

    /// Sets which stripe of a set this is.
    #[doc(hidden)]
    #[must_use]
    pub fn with_stripe(self, stripe: u32) -> Self {
        self.with(|about| about.stripe = Some(stripe))
    }

    fn with(mut self, set: impl FnOnce(&mut About)) -> Self {
        set(Arc::make_mut(self.about.get_or_insert_default()));
        self
    }

    /// Takes a text that was checked.
    pub(crate) fn checked(text: &str) -> Self {
        Self { text: text.into(), about: None }
    }

    /// Returns the key as the store sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the template label that this key was rendered from, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&LockLabel> {
        self.about.as_ref()?.label.as_ref()
    }

    /// Returns which stripe this key is, of a set that `LockManager::striped` made.
    #[must_use]
    pub fn stripe(&self) -> Option<u32> {
        self.about.as_ref()?.stripe
    }

    /// Attaches the metric label of this key.
    #[must_use]
    pub fn with_label(self, label: LockLabel) -> Self {
        self.with(|about| about.label = Some(label))
    }
}

impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LockKey {}

impl std::hash::Hash for LockKey {
    #[inline]
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
