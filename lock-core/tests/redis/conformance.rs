//! Runs the conformance suite on one server.

mod redis {
    use lock_core::RedisStore;
    use lock_testing::RedisServer;

    fn store() -> impl Fn() -> RedisStore {
        let server = RedisServer::start();
        move || RedisStore::new(&server.url()).unwrap()
    }

    lock_testing::conformance_tests!(store);
}
