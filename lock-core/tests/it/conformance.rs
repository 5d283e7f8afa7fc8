//! One suite, every store.

mod memory {
    use std::sync::Arc;

    use lock_core::MemoryStore;

    fn store() -> impl Fn() -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::new());
        move || Arc::clone(&store)
    }

    lock_core::conformance_tests!(store);
}

#[cfg(feature = "redis")]
mod redis {
    use lock_core::RedisStore;
    use lock_core::testing::RedisServer;

    fn store() -> impl Fn() -> RedisStore {
        let server = RedisServer::start();
        move || RedisStore::new(&server.url()).unwrap()
    }

    lock_core::conformance_tests!(store);
}
