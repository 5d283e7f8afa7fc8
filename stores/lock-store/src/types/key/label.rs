//! The name of a family of locks, which metrics show.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::sync::Arc;

/// The low-cardinality name of a family of locks: a key template, a declared name, or a call site.
///
/// This is the value of the `lock` label of every metric. It never contains a rendered key, so the number of series is
/// bounded by the number of call sites.
///
/// ```
/// use lock_core::LockLabel;
///
/// assert_eq!(LockLabel::from_static("lock:user:<id>").as_str(), "lock:user:<id>");
/// ```
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
