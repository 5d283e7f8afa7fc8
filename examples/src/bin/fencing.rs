//! Fencing: a token prevents late writes that a lock alone cannot prevent.
//!
//! A holder may be paused for longer than its lease: by the scheduler, by a virtual machine that is
//! moved, by swapping. It wakes up, does not know that the lock has a new holder, and writes. No lock
//! with a lease can prevent that, but the resource can refuse the write. Each grant has a greater token
//! than all earlier grants, and the resource remembers the greatest.
//!
//! ```sh
//! cargo run -p lock-examples --bin fencing
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin fencing
//! ```

use std::env;
use std::error::Error;
use std::future::{Future, ready};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{FencingGate, FencingToken, LockManager, Renew, StaleToken};
use tokio::sync::oneshot;

/// The resource. In a real system it is a database or a separate service, and it has the gate.
#[derive(Debug, Default)]
struct Document {
    gate: FencingGate,
    text: Mutex<String>,
}

impl Document {
    /// Writes, unless a later holder has already written.
    ///
    /// The slow work comes first and holds no lock of the document, so a holder that is paused there blocks no other.
    /// Check and write come last and are one step, like one statement of a database (`docs/fencing.md`).
    async fn write(&self, token: FencingToken, text: &str, work: impl Future) -> Result<(), StaleToken> {
        work.await;
        let mut current = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.admit(token)?;
        text.clone_into(&mut current);
        println!("token {token} wrote {text:?}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| {
        eprintln!("LOCK_URL is not set: memory://, locks of this process only");
        "memory://".to_owned()
    });
    let locks = LockManager::connect(&url).await?;
    let outcome = tokio::select! {
        outcome = pause_too_long(&locks) => outcome,
        // On Ctrl-C or SIGTERM, held locks are released.
        report = locks.shutdown_on_signal(Duration::from_secs(5)) => report.map(drop).map_err(Into::into),
    };
    locks.shutdown(Duration::from_secs(5)).await;
    outcome
}

async fn pause_too_long(locks: &LockManager) -> Result<(), Box<dyn Error>> {
    let document = Document::default();

    // Without the watchdog the lease ends after 300 ms, as if this process were paused.
    let first = locks.lock("document:7").with_ttl(Duration::from_millis(300)).with_renew(Renew::Off).await?;
    document.write(first.token(), "the first holder was here", ready(())).await?;

    println!("the first holder begins to write, and is frozen ...");
    let (wake, woken) = oneshot::channel();
    let frozen = document.write(first.token(), "the first holder again", woken);
    let successor = async {
        let second = locks.lock("document:7").await?;
        document.write(second.token(), "the second holder was here", ready(())).await?;
        println!("... and the first wakes up, sure to hold the lock");
        wake.send(()).map_err(|()| "nobody is frozen")?;
        Ok::<_, Box<dyn Error>>(second)
    };
    let (refused, second) = tokio::join!(frozen, successor);
    let second = second?;
    let Err(refusal) = refused else {
        return Err("the stale write went through".into());
    };
    println!("refused: {refusal}");

    // A careful holder checks first. That makes a stale write rare; only the token makes it impossible.
    if let Err(lost) = first.ensure_held() {
        println!("and ensure_held agrees: {lost}");
    }
    second.release().await?;
    Ok(())
}
