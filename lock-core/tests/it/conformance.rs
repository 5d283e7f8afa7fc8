//! Runs the conformance suite on every store.

mod memory {
    use lock_core::MemoryStore;

    fn store() -> impl Fn() -> MemoryStore {
        let store = MemoryStore::new();
        move || store.clone()
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

#[cfg(feature = "redis")]
mod redis_cluster {
    use lock_core::RedisStore;
    use lock_core::testing::RedisCluster;

    fn store() -> impl Fn() -> RedisStore {
        let cluster = RedisCluster::start(3);
        move || RedisStore::new(&cluster.url()).unwrap()
    }

    lock_core::conformance_tests!(store);
}
