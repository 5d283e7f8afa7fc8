//! The guard: locks taken by hand, where an attribute does not fit.
//!
//! ```sh
//! cargo run -p lock-examples --bin guard_api
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin guard_api
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| {
        eprintln!("LOCK_URL is not set: memory://, locks of this process only");
        "memory://".to_owned()
    });
    let locks = LockManager::connect(&url).await?;
    let outcome = tokio::select! {
        outcome = tour(&locks) => outcome,
        // On Ctrl-C or SIGTERM, held locks are released.
        report = locks.shutdown_on_signal(Duration::from_secs(5)) => report.map(drop),
    };
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(outcome?)
}

async fn tour(locks: &LockManager) -> Result<(), LockError> {
    // Awaiting a request acquires. The options are the manager's defaults unless set here.
    let guard = locks.lock("report:daily").with_ttl(Duration::from_secs(10)).with_wait(Duration::from_secs(2)).await?;
    println!("acquired {} with token {}, {:.0?} left", guard.key(), guard.token(), guard.remaining());

    // Good for an error page, never for a decision: the answer is already old when it arrives.
    if let Some(holder) = locks.holder("report:daily").await? {
        println!("held by {holder}");
    }

    // A busy lock is not an error here ...
    assert!(locks.lock("report:daily").try_acquire().await?.is_none());
    println!("try_acquire found it taken");

    // ... but it is one here, after the request has waited for its whole limit.
    let refused = locks.lock("report:daily").with_wait(Duration::from_millis(100)).acquire().await;
    match refused {
        Err(error) if error.kind() == LockErrorKind::Timeout => println!("refused: {error}"),
        Err(error) => return Err(error),
        Ok(_) => unreachable!("the lock is held by the guard above"),
    }

    // Before a step that must not happen twice, check that the lock is still held. This reads the clock and sends nothing.
    guard.ensure_held()?;

    // The watchdog renews a lease every third of its ttl. A long blocking call may prevent that, so extend the lease before it.
    guard.extend(Duration::from_secs(60)).await?;
    println!("extended, {:.0?} left", guard.remaining());

    // Waits for the confirmation. Dropping the guard releases too, in the background.
    let outcome = guard.release().await?;
    println!("released: {outcome:?}");

    // The same in one call. If the lock is lost, the body is dropped at its next await.
    let pages = locks
        .lock("report:daily")
        .run(async |guard| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            println!("writing under token {}", guard.token());
            Ok::<_, LockError>(12)
        })
        .await?;
    println!("wrote {pages} pages");
    Ok(())
}
