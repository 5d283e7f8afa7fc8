//! What goes wrong with each lock, told by a task each.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_core::{LockError, LockErrorKind, LockManager, LockRequest, lock_key};
use redis::AsyncCommands as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::args::Args;
use crate::guide::Keys;

/// Short, so that a lost lock is noticed while one watches.
const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(3);

/// The name of the lock whose key somebody typed.
const TYPED: &str = "demo:typed:<text>";

/// Starts every scene. `others` is a manager that the store takes for another process.
pub(crate) fn play(
    scenes: &mut JoinSet<Result<()>>,
    args: &Args,
    locks: &LockManager,
    others: &LockManager,
    keys: &Keys,
) {
    let Keys { run } = *keys;
    scenes.spawn(close_the_books(args.clone(), locks.clone(), run));
    for _ in 0..2 {
        scenes.spawn(write_invoices(args.clone(), others.clone(), run));
    }
    scenes.spawn(import(locks.clone(), run));
    scenes.spawn(take_away(args.clone(), keys.lost()));
    scenes.spawn(export(locks.clone(), run));
    scenes.spawn(reindex(locks.clone(), run));
    scenes.spawn(search(locks.clone(), keys.hostile()));
    for _ in 0..5 {
        scenes.spawn(check_out(locks.clone(), run));
    }
}

/// The stuck holder: it takes the lock and then does not come to an end.
async fn close_the_books(args: Args, locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:stuck:books:<run>")).with_stuck_after(args.stuck_after);
        let guard = request.with_ttl(TTL).with_wait(Duration::from_secs(60)).await?;
        println!("took {}, and will not let go of it for {:.0?}", guard.key(), args.stuck_for);
        tokio::select! {
            () = sleep(args.stuck_for) => {}
            reason = guard.lost() => println!("lost the stuck lock: {reason:?}"),
        }
        // A lock that was lost, perhaps because somebody forced it, is nothing to release.
        if guard.ensure_held().is_ok() {
            let key = guard.key().clone();
            guard.release().await?;
            println!("released {key}");
        }
        sleep(args.rest).await;
    }
}

/// Its victims: they wait in vain, give up, and try again.
async fn write_invoices(args: Args, locks: LockManager, run: u32) -> Result<()> {
    loop {
        sleep(Duration::from_millis(50)).await;
        let request = locks.lock(lock_key!("demo:stuck:books:<run>")).with_stuck_after(args.stuck_after);
        hold_for(request.with_ttl(TTL).with_wait(PATIENCE), Duration::from_millis(5)).await?;
    }
}

/// A holder whose lock is taken away. It stops as soon as it knows.
async fn import(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let guard = locks.lock(lock_key!("demo:lost:import:<run>")).with_ttl(TTL).with_wait(PATIENCE).await?;
        tokio::select! {
            () = sleep(Duration::from_secs(20)) => {
                if guard.ensure_held().is_ok() {
                    guard.release().await?;
                }
            }
            reason = guard.lost() => println!("lost {}: {reason:?}; the work stopped", guard.key()),
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// What no program should do, and an operator in a hurry does: it deletes the key of a lock.
async fn take_away(args: Args, key: String) -> Result<()> {
    let client = redis::Client::open(args.store.as_str()).context("cannot read the URL of the store")?;
    loop {
        sleep(args.lose_every).await;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let _: u32 = connection.del(&key).await?;
    }
}

/// Waits for a lock whose holder is dead.
async fn export(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:orphaned:export:<run>")).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_millis(100)).await?;
        sleep(Duration::from_secs(5)).await;
    }
}

/// The call site that makes the others wait.
async fn reindex(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:contended:stock:<run>")).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_millis(600)).await?;
        sleep(Duration::from_millis(700)).await;
    }
}

/// The call site that is made to wait.
async fn check_out(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:contended:stock:<run>")).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_millis(15)).await?;
        sleep(Duration::from_millis(60)).await;
    }
}

/// A key that was built by hand from what somebody typed, so that nothing in it is escaped.
async fn search(locks: LockManager, key: String) -> Result<()> {
    loop {
        let request = locks.lock(key.as_str()).with_label(TYPED).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_secs(5)).await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Holds a lock for a while. That it could not be had, or was lost, is what this program is about.
async fn hold_for(request: LockRequest, time: Duration) -> Result<()> {
    let outcome: Result<(), LockError> = request
        .run(async |_| {
            sleep(time).await;
            Ok(())
        })
        .await;
    match outcome {
        Err(error) if !matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Lost) => Err(error.into()),
        _ => Ok(()),
    }
}
