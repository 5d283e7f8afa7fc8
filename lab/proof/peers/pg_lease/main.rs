//! pg_lease as its README shows it. A function runs under the lease, which is renewed meanwhile; if a renewal fails,
//! the function is aborted. `verify_lease_held` checks in a transaction. The lease may end between the check and the
//! write, and the write would not notice.

use std::error::Error;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering::SeqCst};
use std::time::Duration;

use pg_lease::{LeaseLooper, LeaseLooperOptions, verify_lease_held};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};

/// Signals that the function under the lease has begun and that it must end; and whether it runs.
#[derive(Clone, Default)]
struct Held(Arc<(Notify, Notify, AtomicBool)>);

/// Dropped when the function ends, by itself or because it was aborted.
struct Running(Held);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.0.2.swap(false, SeqCst) {
            println!("{}", json!({"lost": true}));
        }
    }
}

async fn hold(held: Held) -> Result<(), Box<dyn Error + Send + Sync>> {
    held.0.2.store(true, SeqCst);
    let _running = Running(held.clone());
    held.0.0.notify_one();
    held.0.1.notified().await;
    held.0.2.store(false, SeqCst);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let [url, ttl] = [1, 2].map(|place| std::env::args().nth(place).unwrap_or_default());
    let ttl = Duration::from_millis(ttl.parse()?);
    let pool = sqlx::postgres::PgPoolOptions::new().acquire_timeout(Duration::from_secs(2)).connect_lazy(&url)?;
    // A name for each process: pg_lease identifies the holder by it.
    let worker = format!("worker-{}", std::process::id());
    let verify = async |key: &str| verify_lease_held(&mut pool.begin().await?, key, &worker).await;
    let (loop_interval, loop_interval_jitter) = (Duration::from_millis(20), Duration::from_millis(20));
    let (lease_duration, lease_heartbeat_interval) = (ttl, ttl / 3);
    let options = LeaseLooperOptions { loop_interval, loop_interval_jitter, lease_duration, lease_heartbeat_interval };
    let (mut key, mut held, mut looper) = (String::new(), Held::default(), None);
    println!("{}", json!({"ready": "pg_lease 0.1.3"}));
    for line in std::io::stdin().lines() {
        let order: Value = serde_json::from_str(&line?)?;
        let answer = if let Some(wanted) = order["acquire"].as_str() {
            (key, held) = (wanted.to_owned(), Held::default());
            let run = |_, held| hold(held);
            let started = LeaseLooper::new(key.clone(), run, worker.clone(), pool.clone(), options, held.clone());
            started.start().await?;
            let wait = Duration::from_millis(order["wait_ms"].as_u64().unwrap_or_default());
            let acquired = timeout(wait, held.0.0.notified()).await.is_ok();
            if !acquired {
                started.stop().await?;
            }
            looper = Some(started);
            json!({"acquired": acquired})
        } else if order["check"] == true {
            json!({"held": held.0.2.load(SeqCst) && verify(&key).await.unwrap_or(false)})
        } else {
            let (was, running) = (held.0.2.load(SeqCst), looper.take());
            held.0.1.notify_one();
            // Waits until the lease is given back. After a loss the looper would acquire it again, so it is stopped.
            let gone = async { while was && verify(&key).await.unwrap_or(false) {} };
            let _ = timeout(ttl, gone).await;
            if let Some(lost) = running.filter(|_| !was) {
                lost.stop().await?;
            }
            json!({"released": was})
        };
        println!("{answer}");
    }
    Ok(())
}
