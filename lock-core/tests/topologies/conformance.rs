//! Runs the conformance suite on several servers.

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

mod redis_cluster {
    use lock_core::RedisStore;
    use lock_testing::RedisCluster;

    fn store() -> impl Fn() -> RedisStore {
        let cluster = RedisCluster::start(3);
        move || RedisStore::new(&cluster.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

mod redis_sentinel {
    use lock_core::RedisStore;
    use lock_testing::RedisSentinels;

    fn store() -> impl Fn() -> RedisStore {
        let servers = RedisSentinels::builder().with_replicas(1).start();
        move || RedisStore::new(&servers.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}
