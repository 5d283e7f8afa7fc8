//! Readers, writers and permits.

use lock_core::{LockError, LockErrorKind, LockGuard, LockManager, Mode, RedisStore, distributed_lock};
use lock_testing::{RedisServer, limit};
use tokio::sync::Barrier;

use crate::support::manager;

/// Stays inside until somebody else, who came when all were inside, has tried.
async fn until_another_tried(inside: &Barrier) {
    inside.wait().await;
    inside.wait().await;
}

#[distributed_lock(key = "price:<id>", mode = "read", wait = "none", guard = lock, client = locks)]
async fn read(locks: &LockManager, id: u32, inside: &Barrier) -> Result<Mode, LockError> {
    until_another_tried(inside).await;
    Ok(lock.mode())
}

#[distributed_lock(key = "price:<id>", mode = "write", wait = "none", guard = lock, client = locks)]
async fn write(locks: &LockManager, id: u32, inside: &Barrier) -> Result<Mode, LockError> {
    until_another_tried(inside).await;
    Ok(lock.mode())
}

#[distributed_lock(key = "uploads", permits = limit, weight = 2, wait = "none", client = locks)]
async fn upload(locks: &LockManager, limit: u32, inside: &Barrier) -> Result<(), LockError> {
    until_another_tried(inside).await;
    Ok(())
}

#[distributed_lock(key = "price:<id>", mode = "read", guard = lock, client = locks)]
fn read_blocking(locks: &LockManager, id: u32) -> Result<Mode, LockError> {
    Ok(lock.mode())
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, LockError>, why: LockErrorKind) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), why, "{error}");
    error.to_string()
}

async fn check(locks: LockManager) {
    let (both, three) = (Barrier::new(2), Barrier::new(3));
    let (one, two, writer) = tokio::join!(read(&locks, 1, &three), read(&locks, 1, &three), async {
        three.wait().await;
        let writer = write(&locks, 1, &three).await;
        three.wait().await;
        writer
    });
    assert_eq!((one, two), (Ok(Mode::READ), Ok(Mode::READ)));
    refused(writer, LockErrorKind::Busy);
    let (writer, reader) = tokio::join!(write(&locks, 2, &both), async {
        both.wait().await;
        let reader = read(&locks, 2, &both).await;
        both.wait().await;
        reader
    });
    assert_eq!(writer, Ok(Mode::Exclusive));
    refused(reader, LockErrorKind::Busy);

    let (one, two, refusal) = tokio::join!(upload(&locks, 5, &three), upload(&locks, 5, &three), async {
        three.wait().await;
        let refusal = upload(&locks, 5, &three).await;
        three.wait().await;
        refusal
    });
    assert_eq!((one, two), (Ok(()), Ok(())));
    refused(refusal, LockErrorKind::Busy);
    assert!(refused(upload(&locks, 0, &three).await, LockErrorKind::Misconfigured).contains("at least 1"));
    assert!(refused(upload(&locks, 1, &three).await, LockErrorKind::Misconfigured).contains("never fits"));
    let blocking = locks.clone();
    let mode = tokio::task::spawn_blocking(move || read_blocking(&blocking, 3)).await.unwrap();
    assert_eq!(mode, Ok(Mode::READ));
}

#[tokio::test]
#[limit]
async fn readers_share_and_permits_are_counted_in_memory() {
    check(manager()).await;
}

#[tokio::test]
#[limit]
async fn readers_share_and_permits_are_counted_on_redis() {
    let server = RedisServer::start();
    check(LockManager::builder(RedisStore::new(&server.url()).unwrap()).build().unwrap()).await;
}

#[distributed_lock(key = "price:<id>", mode = "read", client = locks)]
async fn reads_then_writes(locks: &LockManager, id: u32) -> Result<(), LockError> {
    locks.write(format!("price:{id}")).await.map(drop)
}

#[distributed_lock(key = "price:<id>", mode = "write", client = locks)]
async fn writes_then_reads(locks: &LockManager, id: u32) -> Result<Mode, LockError> {
    Ok(locks.read(format!("price:{id}")).reentrant().await?.mode())
}

#[tokio::test]
#[limit]
async fn a_reader_that_wants_to_write_is_refused_at_once_and_a_writer_may_read() {
    let locks = manager();
    assert!(refused(reads_then_writes(&locks, 1).await, LockErrorKind::WouldDeadlock).contains("downgrade"));
    assert_eq!(writes_then_reads(&locks, 1).await, Ok(Mode::Exclusive), "it shares the writer's grant");
    let _: Result<LockGuard, _> = locks.write("price:1").await;
}
