//! Runs the conformance suite, wherever Redis is found.

mod one {
    use lock_redisson::RedissonStore;
    use lock_testing::RedisServer;

    fn store() -> impl Fn() -> RedissonStore {
        let server = RedisServer::start();
        move || RedissonStore::new(&server.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

mod sentinel {
    use lock_redisson::RedissonStore;
    use lock_testing::RedisSentinels;

    fn store() -> impl Fn() -> RedissonStore {
        let servers = RedisSentinels::builder().with_replicas(1).start();
        move || RedissonStore::new(&servers.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

mod cluster {
    use lock_redisson::RedissonStore;
    use lock_testing::RedisCluster;

    fn store() -> impl Fn() -> RedissonStore {
        let cluster = RedisCluster::start(3);
        move || RedissonStore::new(&cluster.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

mod cluster_with_sharded_channels {
    use lock_redisson::RedissonStore;
    use lock_testing::RedisCluster;

    fn store() -> impl Fn() -> RedissonStore {
        let cluster = RedisCluster::start(3);
        move || RedissonStore::new(&format!("{}?redisson_publish=sharded", cluster.url())).unwrap()
    }

    lock_testing::conformance_tests!(store);
}
