//! Any store, without its type.

use std::sync::Arc;

use crate::contract::backend::{DynBackend, LockBackend};

/// Any store, without its type: a member of a `Quorum`, or the store that a URL names.
///
/// ```
/// use lock_core::{AnyBackend, MemoryStore};
///
/// let member = AnyBackend::new(MemoryStore::new()).named("a");
/// assert_eq!(member.name(), "a");
/// ```
#[derive(Clone, Debug)]
pub struct AnyBackend {
    name: Arc<str>,
    #[doc(hidden)]
    pub backend: Arc<dyn DynBackend>,
}

impl AnyBackend {
    /// Takes a store. Its name is the name of its node, for example `10.0.0.7:6379`.
    #[must_use]
    pub fn new(backend: impl LockBackend) -> Self {
        Self { name: backend.node(0).into(), backend: Arc::new(backend) }
    }

    /// Gives the store another name. Every process must give a member the same name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the store, for a call that may outlive its caller.
    #[doc(hidden)]
    #[must_use]
    pub fn backend(&self) -> Arc<dyn DynBackend> {
        Arc::clone(&self.backend)
    }

    /// Returns the name, without credentials.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}
