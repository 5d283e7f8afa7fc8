//! A web service in which each user is charged by one request at a time.
//!
//! ```sh
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-examples --bin web_service
//! curl -i -X POST http://127.0.0.1:8080/users/42/charge      # twice at once: 200 and 409
//! curl http://127.0.0.1:8080/metrics
//! ```
//!
//! `LISTEN` sets another address. Without `LOCK_URL` the locks are those of this process only.

use std::env;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_core::{LockError, LockErrorKind, LockManager, distributed_lock};
use tokio::net::TcpListener;
use tokio::signal;

/// Charges a user. A caller who cannot have the lock soon is told so, instead of piling up.
#[distributed_lock(key = "charge:user:<user_id>", ttl = "10s", wait = "200ms")]
async fn charge(user_id: u64) -> Result<String, ChargeError> {
    // The payment provider takes its time.
    tokio::time::sleep(Duration::from_millis(800)).await;
    Ok(format!("user {user_id} is charged\n"))
}

/// Why a charge did not happen. A service with errors of its own has more variants.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct ChargeError(#[from] LockError);

impl IntoResponse for ChargeError {
    fn into_response(self) -> Response {
        // For the log: it names the holder, which is nothing for the outside.
        eprintln!("no charge: {self}");
        match self.0.kind() {
            LockErrorKind::Busy | LockErrorKind::Timeout => {
                (StatusCode::CONFLICT, [(RETRY_AFTER, "1")], "this user is being charged\n").into_response()
            }
            // The store is away, the lock was lost on the way, or we are about to stop.
            LockErrorKind::Unavailable | LockErrorKind::Lost | LockErrorKind::ShutDown => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], "try again later\n").into_response()
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = lock_metrics::install()?;
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory://".to_owned());
    let locks = LockManager::connect(&url).await?;
    locks.clone().install()?;

    let scrape = move || async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()) };
    let app = Router::new()
        .route("/users/{id}/charge", post(async |Path(id): Path<u64>| charge(id).await))
        .route("/metrics", get(scrape));

    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // First the requests end, then the locks: the other way round would take them from running bodies.
    axum::serve(listener, app).with_graceful_shutdown(stop_requested()).await?;
    let report = locks.shutdown(Duration::from_secs(5)).await;
    println!("stopped; every lock given back: {}", report.is_clean());
    Ok(())
}

/// Waits for Ctrl-C, or for the signal by which an orchestrator stops a container.
async fn stop_requested() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = signal::ctrl_c().await;
}
