//! rslock over one server, as its documentation shows it: it polls for the lock, and knows the rest of a lease from the
//! time of the grant.

use std::io::stdin;
use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};
use serde_json::{Value, json};

/// The held lock, and the end of its lease.
type Held = Option<(Lock, Instant)>;

pub(crate) fn main(url: &str, ttl_ms: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = LockManager::new(vec![url.to_owned()]);
    let mut held = None;
    println!("{}", json!({"ready": "rslock 0.10"}));
    for line in stdin().lines().map_while(Result::ok) {
        let order = serde_json::from_str(&line).unwrap();
        println!("{}", runtime.block_on(answer(&locks, &mut held, &order, ttl_ms)));
    }
}

async fn answer(locks: &LockManager, held: &mut Held, order: &Value, ttl_ms: u64) -> Value {
    if let Some(key) = order.get("acquire").and_then(Value::as_str) {
        let end = Instant::now() + Duration::from_millis(order["wait_ms"].as_u64().unwrap_or_default());
        loop {
            let asked = Instant::now();
            match locks.lock(key.as_bytes(), Duration::from_millis(ttl_ms)).await {
                Ok(lock) => {
                    let until = asked + Duration::from_millis(lock.validity_time.try_into().unwrap_or_default());
                    *held = Some((lock, until));
                    return json!({"acquired": true});
                }
                Err(error) if asked > end => return json!({"acquired": false, "why": error.to_string()}),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
    if order.get("check").is_some() {
        return json!({"held": held.as_ref().is_some_and(|(_, until)| Instant::now() < *until)});
    }
    if let Some((lock, _)) = held.take() {
        locks.unlock(&lock).await;
    }
    json!({"released": true})
}
