//! The `Mutex` of distkit over one server, as its documentation shows it: one for each key, which waiters poll for. A task
//! of the guard renews the lease and notes the outcome, for which the holder asks.

use std::collections::HashMap;
use std::io::stdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use distkit::{DistkitError, DistkitRedisKey};
use serde_json::{Value, json};

pub(crate) fn main(url: &str, ttl_ms: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let client = redis::Client::open(url).unwrap();
    let connection = std::iter::repeat_with(|| runtime.block_on(client.get_connection_manager())).find_map(Result::ok);
    let mutex = |key: &str| {
        let key = DistkitRedisKey::try_sanitize(key.to_owned()).unwrap();
        let options = LockOptions::builder(key, connection.clone().unwrap());
        Mutex::new(options.ttl(Duration::from_millis(ttl_ms)).build())
    };
    let (mut mutexes, mut held) = (HashMap::<String, Arc<Mutex>>::new(), None);
    println!("{}", json!({"ready": "distkit 0.7 Mutex"}));
    for line in stdin().lines().map_while(Result::ok) {
        let order: Value = serde_json::from_str(&line).unwrap();
        let answer = if let Some(key) = order["acquire"].as_str() {
            let mutex = mutexes.entry(key.to_owned()).or_insert_with(|| mutex(key));
            let wait = Duration::from_millis(order["wait_ms"].as_u64().unwrap_or_default());
            let got = runtime.block_on(acquire(mutex, wait));
            let why = got.as_ref().err().map(ToString::to_string);
            held = got.ok();
            json!({"acquired": held.is_some(), "why": why})
        } else if order["check"] == true {
            json!({"held": held.as_ref().map(MutexGuard::get_state) == Some(LockGuardState::Acquired)})
        } else {
            let state = held.take().and_then(|guard| runtime.block_on(guard.release()).ok());
            json!({"released": state == Some(LockGuardState::Released)})
        };
        println!("{answer}");
    }
}

/// Waits until the time is over: an error of the connection ends only one attempt.
async fn acquire(mutex: &Mutex, wait: Duration) -> Result<MutexGuard, DistkitError> {
    let asked = Instant::now();
    loop {
        let got = mutex.try_lock_with_timeout(wait.saturating_sub(asked.elapsed())).await;
        if got.is_ok() || asked.elapsed() >= wait {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
