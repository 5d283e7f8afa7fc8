//! Runs the conformance suite on every store.

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

#[cfg(feature = "redis")]
mod redis {
    use lock_core::RedisStore;
    use lock_testing::RedisServer;

    fn store() -> impl Fn() -> RedisStore {
        let server = RedisServer::start();
        move || RedisStore::new(&server.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

#[cfg(feature = "redis")]
mod quorum_of_servers {
    use std::time::Duration;

    use lock_core::Quorum;
    use lock_testing::RedisServer;

    fn store() -> impl Fn() -> Quorum {
        let servers = [(); 3].map(|()| RedisServer::start());
        let members = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port())).join(",");
        let quorum = move || {
            Quorum::new(&format!("redlock://{members}")).unwrap().with_max_ttl(Duration::from_secs(24 * 3600)).unwrap()
        };
        tokio::runtime::Runtime::new().unwrap().block_on(quorum().init()).unwrap();
        move || {
            let _ = &servers;
            quorum()
        }
    }

    lock_testing::conformance_tests!(store);
}

#[cfg(feature = "redis")]
mod redis_cluster {
    use lock_core::RedisStore;
    use lock_testing::RedisCluster;

    fn store() -> impl Fn() -> RedisStore {
        let cluster = RedisCluster::start(3);
        move || RedisStore::new(&cluster.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

#[cfg(feature = "redis")]
mod redis_sentinel {
    use lock_core::RedisStore;
    use lock_testing::RedisSentinels;

    fn store() -> impl Fn() -> RedisStore {
        let servers = RedisSentinels::builder().with_replicas(1).start();
        move || RedisStore::new(&servers.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}
