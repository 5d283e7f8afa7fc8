//! One suite, every store.

use std::sync::Arc;

use lock_core::{LockManager, MemoryStore, conformance};

#[tokio::test]
async fn memory_keeps_the_contract() {
    conformance::contract(MemoryStore::new()).await;
}

#[tokio::test]
async fn memory_behaves() {
    let store = Arc::new(MemoryStore::new());
    conformance::behaviour(|| async { LockManager::builder(Arc::clone(&store)).build().unwrap() }).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_keeps_the_contract() {
    let server = lock_core::testing::RedisServer::start();
    conformance::contract(lock_core::RedisStore::new(&server.url()).unwrap()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_behaves() {
    let server = lock_core::testing::RedisServer::start();
    conformance::behaviour(|| async { LockManager::connect(&server.url()).await.unwrap() }).await;
}
