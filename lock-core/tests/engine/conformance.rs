//! Runs the conformance suite on every store in memory.

mod memory {
    use lock_core::MemoryStore;

    fn store() -> impl Fn() -> MemoryStore {
        let store = MemoryStore::new();
        move || store.clone()
    }

    lock_testing::conformance_tests!(store);
}

mod session {
    use std::sync::Arc;

    use crate::sessions::{Fault, SessionStore};

    fn store() -> impl Fn() -> SessionStore {
        let leader = Arc::default();
        move || SessionStore::new(&leader, Fault::None)
    }

    lock_testing::conformance_tests!(store);
}

mod quorum {
    use std::time::Duration;

    use lock_core::{AnyBackend, MemoryStore, Quorum};

    fn store() -> impl Fn() -> Quorum {
        let members = ["a", "b", "c"].map(|name| AnyBackend::new(MemoryStore::new()).named(name));
        // One rule takes a lock for a day.
        move || Quorum::of(members.clone()).unwrap().with_max_ttl(Duration::from_secs(24 * 3600)).unwrap()
    }

    lock_testing::conformance_tests!(store);
}
