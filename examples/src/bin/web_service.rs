//! A web service in which at most one request at a time charges a user, and one changes a cart.
//!
//! ```sh
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin web_service
//! curl -i -X POST http://127.0.0.1:8080/users/42/charge      # twice at once: 200 and 409
//! curl -i -X PUT http://127.0.0.1:8080/carts/7
//! curl http://127.0.0.1:8080/metrics
//! open http://127.0.0.1:8080/locks                           # who holds what, and who waits
//! ```
//!
//! `LISTEN` sets another address. Without `LOCK_URL` the service does not start: its instances would not exclude each other.
//! To try it alone, set `LOCK_URL=memory://`.

use std::env;
use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::Html;
use axum::routing::{get, post, put};
use lock_core::{LockError, LockLayer, LockManager, distributed_lock, lock_key};
use lock_metrics::{FleetInspector, LIVE_VIEW_CSP};
use tokio::net::TcpListener;

/// Charges a user. A caller that cannot get the lock soon gets an answer instead of piling up. A `LockError` is a
/// response: 409, or 503 with `Retry-After`.
#[distributed_lock(key = "charge:user:<user_id>", ttl = "10s", wait = "200ms")]
async fn charge(user_id: u64) -> Result<String, LockError> {
    // Stands for a slow payment provider.
    tokio::time::sleep(Duration::from_millis(800)).await;
    Ok(format!("user {user_id} is charged\n"))
}

/// Changes a cart. A layer on its route holds the lock, so no lock appears here.
async fn change_cart(Path(id): Path<u64>) -> String {
    format!("cart {id} is changed\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = lock_metrics::install()?;
    let locks = LockManager::builder_from_env()?.serve_while_stopping().connect().await?;
    locks.install()?;

    // The path becomes the key of a cart's lock. A request waits for the lock for at most 5 s, the manager's default.
    let carts = locks.clone();
    let one_at_a_time = LockLayer::new(move |request: &Request| {
        let path = request.uri().path();
        carts.lock(lock_key!("request:<path>")).with_max_hold(Duration::from_secs(30))
    });
    // One elected instance of the fleet reads every lock in the store, for *Locks: fleet*. That includes locks whose
    // holders are not scraped. Locks in memory belong to this process alone.
    let url = env::var("LOCK_URL")?;
    let inspector = match url.starts_with("memory") {
        false => Some(FleetInspector::new(&url)?.start(&metrics)?),
        true => None,
    };
    let (scraped, live) = (metrics.clone(), metrics.clone());
    let app = Router::new()
        .route("/users/{id}/charge", post(async |Path(id): Path<u64>| charge(id).await))
        .route("/carts/{id}", put(change_cart).layer(one_at_a_time))
        .route("/metrics", get(async move || ([(CONTENT_TYPE, "text/plain; version=0.0.4")], scraped.render())))
        // These pages show keys: in a public service, mount them on a separate listener. The second is for `lockctl why
        // --live-view`.
        .route("/locks", get(async move || ([(CONTENT_SECURITY_POLICY, LIVE_VIEW_CSP), (CACHE_CONTROL, "no-store")], Html(metrics.locks_html()))))
        .route("/locks.json", get(async move || ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], live.locks_json())));

    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // On Ctrl-C and SIGTERM, the server stops accepting requests. Accepted requests have five seconds to finish. They
    // still get their locks, because this manager serves while it stops.
    let server = axum::serve(listener, app).with_graceful_shutdown(locks.stopping());
    let (served, report) = tokio::join!(server.into_future(), locks.shutdown_on_signal(Duration::from_secs(5)));
    served?;
    if let Some(inspector) = inspector {
        inspector.stop().await;
    }
    println!("stopped; every lock given back: {}", report?.is_clean());
    Ok(())
}
