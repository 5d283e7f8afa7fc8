//! The stores of this process that have a name, as in `memory://name`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::memory::{MemoryStore, Shared};
use lock_store::types::system::sync::Mutex;

impl MemoryStore {
    /// Returns the store of a name in this process. It lives as long as it is in use. Two stores of one name must never
    /// exist: both would grant the same lock.
    pub(crate) fn named(name: &str) -> Self {
        static STORES: Mutex<Option<HashMap<String, Weak<Shared>>>> = Mutex::new(None);
        let mut stores = STORES.lock();
        let stores = stores.get_or_insert_default();
        if let Some(shared) = stores.get(name).and_then(Weak::upgrade) {
            return Self { shared };
        }
        stores.retain(|_, shared| shared.strong_count() > 0);
        let store = Self::new();
        stores.insert(name.to_owned(), Arc::downgrade(&store.shared));
        store
    }
}
