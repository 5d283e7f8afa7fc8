//! `durability = …`: a body runs once its lock has arrived where it must, on real servers.

use std::time::{Duration, Instant};

use lock_core::{Durability, LockError, LockErrorKind, LockManager, distributed_lock};
use lock_testing::{RedisServer, Reply, limit};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = "paid:<id>", ttl = "4s", wait = "none", durability = "acks=1", client = locks)]
async fn confirmed(locks: &LockManager, id: u32, replica: Option<&RedisServer>) -> Result<(), LockError> {
    let replica = replica.expect("nobody has confirmed the lock, so the body does not run");
    assert_eq!(replica.command(&["EXISTS", &format!("paid:{id}")]).int(), 1, "the body runs, so the replica has it");
    Ok(())
}

#[distributed_lock(key = "paid:<id>", ttl = "2s", wait = "10s", durability = Durability::Acks(1), client = locks)]
fn confirmed_and_blocking(locks: &LockManager, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "quick:<id>", ttl = "2s", wait = "none", durability = "master", client = locks)]
async fn quick(locks: &LockManager, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "quick:<id>", ttl = "2s", wait = "none", client = locks)]
async fn as_the_url_says(locks: &LockManager, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k", wait = "none", durability = "acks=all", client = locks)]
async fn on_all(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + 20 * SECOND;
    while !holds() {
        assert!(Instant::now() < end, "the replica never followed");
        tokio::time::sleep(SECOND / 50).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn the_body_runs_once_the_lock_has_arrived() {
    let master = RedisServer::builder().with("repl-diskless-sync-delay", "0").start();
    let locks = LockManager::connect(&master.url()).await.unwrap();
    let asking = LockManager::connect(&format!("{}?acks=1", master.url())).await.unwrap();
    let error = confirmed(&locks, 1, None).await.unwrap_err();
    assert!(
        error.kind() == LockErrorKind::Unavailable && error.to_string().contains("that a replica has the lock"),
        "{error}"
    );
    let error = as_the_url_says(&asking, 2).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    quick(&asking, 3).await.unwrap();
    let error = on_all(&LockManager::in_memory()).await.unwrap_err();
    assert!(
        error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("remove the durability"),
        "{error}"
    );

    let place = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().with("replicaof", &place).start();
    // Once the master counts it, it takes up to a second more until what is written arrives, and is confirmed.
    eventually(|| master.command(&["INFO", "replication"]).text().contains("state=online")).await;
    master.command(&["SET", "seen", "by the replica"]);
    eventually(|| replica.command(&["EXISTS", "seen"]) == Reply::Int(1)).await;
    confirmed(&locks, 4, Some(&replica)).await.unwrap();
    as_the_url_says(&asking, 5).await.unwrap();
    // Its connections are new, and a server begins another history when it gets its first replica.
    tokio::task::spawn_blocking(move || confirmed_and_blocking(&locks, 6).unwrap()).await.unwrap();
}
