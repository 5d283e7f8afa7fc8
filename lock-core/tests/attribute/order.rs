//! Other attributes above and below ours.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::handler::Handler;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use lock_core::{LockError, LockErrorKind, LockManager, current_lock, distributed_lock};
use lock_testing::limit;
use tracing::instrument;

use crate::support::{assert_send, manager};

#[instrument(skip(locks))]
#[distributed_lock(key = "order:<id>", client = locks)]
async fn below_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    tokio::task::yield_now().await;
    Ok(current_lock().is_some())
}

#[distributed_lock(key = "order:<id>", client = locks)]
#[instrument(skip(locks), ret)]
async fn above_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    tokio::task::yield_now().await;
    Ok(current_lock().is_some())
}

#[instrument(skip_all)]
#[distributed_lock(key = "order:<id>", client = locks)]
fn blocking_below_instrument(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    Ok(current_lock().is_some())
}

#[distributed_lock(key = "order:outer", client = locks)]
#[distributed_lock(key = "order:inner:<id>", guard = inner, client = locks)]
#[must_use]
async fn two_locks(locks: &LockManager, id: u32) -> Result<String, LockError> {
    Ok(format!("{} in {:?}", inner.key(), lock_core::LockContext::current()))
}

#[tokio::test]
#[limit]
async fn every_order_locks() {
    let locks = manager();
    assert!(below_instrument(&locks, 1).await.unwrap());
    assert!(above_instrument(&locks, 1).await.unwrap());
    assert!(blocking_below_instrument(&locks, 1).unwrap());
    assert_send(&below_instrument(&locks, 1));
    assert_send(&above_instrument(&locks, 1));
    // The attribute nearest `fn` runs outermost, as for any two attributes.
    assert_eq!(two_locks(&locks, 7).await.unwrap(), r#"order:inner:7 in ["order:outer", "order:inner:7"]"#);
}

fn shared() -> LockManager {
    static LOCKS: std::sync::OnceLock<LockManager> = std::sync::OnceLock::new();
    LOCKS.get_or_init(LockManager::in_memory).clone()
}

#[tokio::test]
#[distributed_lock(key = "order:test", client = shared())]
#[limit]
async fn a_test_under_a_lock() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    let nested = shared().lock("order:test").acquire().await;
    assert_eq!(nested.map(drop).unwrap_err().kind(), LockErrorKind::WouldDeadlock);
    Ok(())
}

#[distributed_lock(key = "order:test", client = shared())]
#[tokio::test]
#[limit]
async fn a_test_whose_body_is_locked() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// A handler, as it is given to a router: with extractors as patterns, and an error that is a response.
#[distributed_lock(key = "order:handler:<uri.path()>", wait = "none", client = locks)]
async fn handler(State(locks): State<LockManager>, uri: Uri) -> Result<String, Refused> {
    tokio::task::yield_now().await;
    Ok(current_lock().map(|lock| lock.key().to_string()).unwrap_or_default())
}

/// The same with a value of the path. Only its type matters.
#[distributed_lock(key = "order:handler:<user>", client = locks)]
async fn handler_of_user(State(locks): State<LockManager>, Path(user): Path<u64>) -> Result<String, Refused> {
    Ok(user.to_string())
}

struct Refused(LockErrorKind);

impl From<LockError> for Refused {
    fn from(error: LockError) -> Self {
        Self(error.kind())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = if self.0 == LockErrorKind::Busy { StatusCode::CONFLICT } else { StatusCode::SERVICE_UNAVAILABLE };
        status.into_response()
    }
}

#[tokio::test]
#[limit]
async fn an_annotated_function_is_a_handler() {
    let locks = manager();
    let _router: Router =
        Router::new().route("/{user}", axum::routing::post(handler_of_user)).with_state(locks.clone());
    let request = || Request::builder().uri("/users/7").body(Body::empty()).unwrap();
    let response = Handler::call(handler, request(), locks.clone()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
    assert_eq!(body, "order:handler:/users/7");
    let _taken = locks.lock("order:handler:/users/7").await.unwrap();
    assert_eq!(Handler::call(handler, request(), locks.clone()).await.status(), StatusCode::CONFLICT);
}
