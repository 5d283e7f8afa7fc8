//! The problems of the locks. One task plays each.

use std::time::Duration;
use std::{io, thread};

use anyhow::Result;
use lock_core::{LockError, LockErrorKind, LockManager, LockRequest, lock_key};
use redis::AsyncCommands as _;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::args::Args;
use crate::guide::Keys;
use crate::left_behind::connection;

/// Short, so that a viewer sees quickly that a lock is lost.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// Long, so that a stuck lock or a leader survives a pause of the machine.
pub(crate) const STEADY_TTL: Duration = Duration::from_secs(60);
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The name of the lock whose key is user input.
const TYPED: &str = "demo:typed:<text>";

/// Starts every scene. `others` is a manager that looks like another process to the store.
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
    scenes.spawn(quarrel(args.clone(), locks.clone(), run));
}

/// The stuck holder: it takes the lock and then does not finish.
async fn close_the_books(args: Args, locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:stuck:books:<run>")).with_stuck_after(args.stuck_after);
        let guard = request.with_ttl(STEADY_TTL).with_wait(Duration::from_secs(60)).await?;
        println!("took {}, and does not let go of it", guard.key());
        tokio::select! {
            () = long_enough(&args) => {}
            reason = guard.lost() => println!("lost the stuck lock: {reason:?}"),
        }
        // A lost lock, perhaps forced by a user, cannot be released.
        if guard.ensure_held().is_ok() {
            let key = guard.key().clone();
            guard.release().await?;
            println!("released {key}");
        }
        sleep(args.rest).await;
    }
}

/// Waits until the stuck lock must be released.
async fn long_enough(args: &Args) {
    if !args.until_told {
        return sleep(args.stuck_for).await;
    }
    let (tell, told) = oneshot::channel();
    // A thread, since a blocking task of the runtime could not end before a line arrives.
    thread::spawn(move || io::stdin().lines().next().and_then(Result::ok).map(|_| tell.send(())));
    if told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The victims: they wait in vain, give up, and retry.
async fn write_invoices(args: Args, locks: LockManager, run: u32) -> Result<()> {
    loop {
        sleep(Duration::from_millis(50)).await;
        let request = locks.lock(lock_key!("demo:stuck:books:<run>")).with_stuck_after(args.stuck_after);
        hold_for(request.with_ttl(TTL).with_wait(PATIENCE), Duration::from_millis(5)).await?;
    }
}

/// A holder whose lock is taken away. It stops as soon as it notices.
async fn import(locks: LockManager, run: u32) -> Result<()> {
    loop {
        match locks.lock(lock_key!("demo:lost:import:<run>")).with_ttl(TTL).with_wait(PATIENCE).await {
            Ok(guard) => tokio::select! {
                () = sleep(Duration::from_secs(20)) => expected(guard.release().await.map(drop))?,
                reason = guard.lost() => println!("lost {}: {reason:?}; the work stopped", guard.key()),
            },
            Err(error) => expected(Err(error))?,
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Deletes the key of a lock, as an operator in a hurry would. A program must not do this.
async fn take_away(args: Args, key: String) -> Result<()> {
    loop {
        sleep(args.lose_every).await;
        let deleted = match connection(&args).await {
            Ok(mut connection) => connection.del::<_, u32>(&key).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        // The store may be away for a moment. The next attempt follows soon.
        if let Err(error) = deleted {
            println!("did not take {key} away: {error:#}");
        }
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

/// The call site that has to wait.
async fn check_out(locks: LockManager, run: u32) -> Result<()> {
    loop {
        let request = locks.lock(lock_key!("demo:contended:stock:<run>")).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_millis(15)).await?;
        sleep(Duration::from_millis(60)).await;
    }
}

/// A key that was built by hand from user input, without escaping.
async fn search(locks: LockManager, key: String) -> Result<()> {
    loop {
        let request = locks.lock(key.as_str()).with_label(TYPED).with_ttl(TTL).with_wait(PATIENCE);
        hold_for(request, Duration::from_secs(5)).await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Two callers take the same two locks in opposite orders. They wait for each other until one gives way.
async fn quarrel(args: Args, locks: LockManager, run: u32) -> Result<()> {
    let patient = |request: LockRequest| request.with_ttl(TTL).with_wait(Duration::from_secs(20));
    loop {
        let order = || patient(locks.lock(lock_key!("demo:nested:order:<run>")));
        let invoice = || patient(locks.lock(lock_key!("demo:nested:invoice:<run>")));
        let (billed, refunded) = tokio::join!(hold_both(order(), invoice()), hold_both(invoice(), order()));
        billed.and(refunded)?;
        sleep(args.lose_every).await;
    }
}

/// Takes a lock inside another.
async fn hold_both(outer: LockRequest, inner: LockRequest) -> Result<()> {
    let outcome = outer.run(async move |_| {
        sleep(Duration::from_millis(300)).await;
        inner.run(async |_| Ok::<_, LockError>(())).await
    });
    expected(outcome.await)
}

/// Holds a lock for a while.
pub(crate) async fn hold_for(request: LockRequest, time: Duration) -> Result<()> {
    let outcome = request.run(async |_| {
        sleep(time).await;
        Ok(())
    });
    expected(outcome.await)
}

/// This program is about busy and lost locks, and an unavailable store comes back. Every other error ends it.
pub(crate) fn expected(outcome: Result<(), LockError>) -> Result<()> {
    use LockErrorKind::{Lost, Timeout, Unavailable, WouldDeadlock};
    match outcome {
        Err(error) if !matches!(error.kind(), Timeout | Lost | Unavailable | WouldDeadlock) => Err(error.into()),
        _ => Ok(()),
    }
}
