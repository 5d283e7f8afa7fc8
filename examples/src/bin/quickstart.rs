//! Quickstart: a function that runs at most once at a time for each user.
//!
//! ```sh
//! cargo run -p lock-examples --bin quickstart                                        # in this process only
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin quickstart       # in the whole fleet
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use lock_core::{LockError, LockManager, distributed_lock};

/// Charges a user. The lock is taken before the body, renewed while it runs, and released after it.
#[distributed_lock(key = "lock:user:<user_id>", ttl = "10s")]
async fn charge(user_id: u64, cents: u32) -> Result<String, LockError> {
    println!("charging user {user_id} ...");
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("charged user {user_id}");
    Ok(format!("receipt for user {user_id}: {cents} cents"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| {
        eprintln!("LOCK_URL is not set: memory://, locks of this process only");
        "memory://".to_owned()
    });
    let locks = LockManager::connect(&url).await?;
    // From here on the attribute finds this manager anywhere in the process.
    locks.install()?;

    // The two charges of user 42 run one after the other; user 7 does not wait.
    let charges = async { tokio::join!(charge(42, 1_250), charge(42, 300), charge(7, 999)) };
    tokio::select! {
        (first, second, other) = charges => {
            for receipt in [first?, second?, other?] {
                println!("{receipt}");
            }
        }
        // On Ctrl-C or SIGTERM, calls in progress may finish and waiting calls are refused.
        report = locks.shutdown_on_signal(Duration::from_secs(5)) => println!("stopped: {:?}", report?),
    }
    // Waits until the store has confirmed every release.
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
