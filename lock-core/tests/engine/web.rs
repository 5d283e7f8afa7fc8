//! Refused locks as HTTP responses, the manager as an argument, and a lock around a request.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{get, put};
use axum::{Extension, Router};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use lock_core::{LockError, LockErrorKind, LockKey, LockLayer, LockManager, MemoryStore, current_lock, lock_key};
use lock_testing::limit;
use tokio::sync::Notify;
use tower::{Layer, ServiceExt, service_fn};

fn put_to(path: &str) -> Request {
    Request::put(path).body(Body::empty()).unwrap()
}

/// The layer that most users would write: one request at a time for each path.
fn by_path<B>(locks: &LockManager) -> LockLayer<impl Fn(&http::Request<B>) -> lock_core::LockRequest + Clone + use<B>> {
    let locks = locks.clone();
    LockLayer::new(move |request: &http::Request<B>| locks.lock(key_of(request.uri().path())).without_waiting())
}

fn key_of(path: &str) -> lock_core::Result<LockKey> {
    lock_key!("request:<path>")
}

async fn problem(response: Response<Body>) -> serde_json::Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

async fn every_failure() -> Vec<(LockError, u16, Option<u64>)> {
    let store = MemoryStore::new();
    let locks = LockManager::builder(store.clone()).build().unwrap();
    let guard = locks.lock("secret-key").await.unwrap();
    let busy = locks.lock("secret-key").without_waiting().await.unwrap_err();
    let timeout = locks.lock("secret-key").with_wait(Duration::from_millis(1)).await.unwrap_err();
    let nested = locks.lock("k").run(async |_| locks.lock("k").await.map(drop)).await.unwrap_err();
    store.steal(guard.key());
    locks.shutdown(Duration::from_secs(5)).await;
    vec![
        (busy, 409, Some(1)),
        (timeout, 409, Some(1)),
        (guard.ensure_held().unwrap_err(), 503, None),
        (locks.lock("secret-key").await.unwrap_err(), 503, Some(1)),
        (LockError::unavailable("away"), 503, Some(5)),
        (LockError::misconfigured("wrong"), 500, None),
        (LockError::invalid_key("empty"), 500, None),
        (nested, 500, None),
    ]
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_request_that_came_this_far_is_served_while_the_manager_drains() {
    let locks = LockManager::for_tests();
    let inner = locks.manager();
    let handler = async move || inner.lock("inside").run(async |_| Ok::<_, LockError>("kept")).await;
    let app: Router = Router::new().route("/{id}", put(handler).layer(by_path(&locks)));
    let report = locks.drain(Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(locks.lock("other").await.unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(app.clone().oneshot(put_to("/7")).await.unwrap().status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let refused = app.oneshot(put_to("/7")).await.unwrap();
    assert_eq!(
        (refused.status(), &*problem(refused).await["code"].to_string()),
        (StatusCode::SERVICE_UNAVAILABLE, "\"stopping\"")
    );
}

#[tokio::test]
#[limit]
async fn each_failure_has_its_status_and_tells_the_outside_no_key() {
    let failures = every_failure().await;
    let kinds: Vec<_> = failures.iter().map(|(error, ..)| error.kind()).collect();
    for kind in [LockErrorKind::Lost, LockErrorKind::ShutDown, LockErrorKind::WouldDeadlock] {
        assert!(kinds.contains(&kind), "{kind:?} is not in {kinds:?}");
    }
    for (error, status, retry_after) in failures {
        assert_eq!(
            (error.http_status(), error.retry_after()),
            (status, retry_after.map(Duration::from_secs)),
            "{error}"
        );
        assert_eq!(error.is_contended(), status == 409, "{error}");
        let response = error.clone().into_response();
        assert_eq!(response.status(), status);
        let told = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told, retry_after.map(|seconds| seconds.to_string()), "{error}");
        assert_eq!(response.extensions().get::<LockError>(), Some(&error));
        let problem = problem(response).await;
        assert_eq!(problem["status"], status);
        assert_eq!(problem["title"], StatusCode::from_u16(status).unwrap().canonical_reason().unwrap());
        assert!(!problem.to_string().contains("secret-key"), "{problem}");
    }
}

#[tokio::test]
#[limit]
async fn a_handler_is_given_the_manager() {
    async fn hold(locks: LockManager) -> Result<String, LockError> {
        let guard = locks.lock("k").await?;
        Ok(guard.key().to_string())
    }
    let ask = |app: Router| async move { app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap() };
    let app = Router::new().route("/", get(hold));
    let refused = ask(app.clone()).await;
    assert_eq!(refused.extensions().get::<LockError>().unwrap().kind(), LockErrorKind::NotInstalled);
    assert_eq!(refused.status(), 500);

    let locks = LockManager::in_memory();
    assert_eq!(locks.scope(ask(app.clone())).await.status(), 200);
    assert_eq!(ask(app.clone().layer(Extension(locks.clone()))).await.status(), 200);
    let state = Router::new().route("/", get(hold)).with_state(7);
    assert_eq!(ask(state.layer(Extension(locks))).await.status(), 200, "whatever the state is");
}

#[tokio::test]
#[limit]
async fn one_request_of_a_key_is_served_at_a_time() {
    let locks = LockManager::in_memory();
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
        async move || {
            entered.notify_one();
            leave.notified().await;
            current_lock().unwrap().token().to_string()
        }
    };
    let app = Router::new().route("/{id}", put(handler).layer(by_path(&locks)));

    let first = tokio::spawn(app.clone().oneshot(put_to("/7")));
    entered.notified().await;
    let refused = app.clone().oneshot(put_to("/7")).await.unwrap();
    assert_eq!((refused.status(), refused.headers()["retry-after"].as_bytes()), (StatusCode::CONFLICT, &b"1"[..]));
    assert_eq!(problem(refused).await["code"], "locked");
    let other = tokio::spawn(app.clone().oneshot(put_to("/8")));
    entered.notified().await;
    leave.notify_waiters();
    let (first, other) = (first.await.unwrap().unwrap(), other.await.unwrap().unwrap());
    assert_eq!((first.status(), other.status()), (StatusCode::OK, StatusCode::OK));

    // The response is made, so the lock is free, although nobody has read the body yet.
    assert!(locks.holder(key_of("/7")).await.unwrap().is_none());
    let body = first.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8(body.to_vec()).unwrap().parse::<u64>().unwrap() > 0);
}

/// Starts to serve one request whose handler never answers, and returns once the handler runs.
async fn stuck(locks: &LockManager) -> tokio::task::JoinHandle<Response<Body>> {
    let entered = Arc::new(Notify::new());
    let told = Arc::clone(&entered);
    let service = by_path(locks).layer(service_fn(move |_: Request| {
        told.notify_one();
        pending::<Result<_, Infallible>>()
    }));
    let served = tokio::spawn(async { service.oneshot(put_to("/7")).await.unwrap() });
    entered.notified().await;
    served
}

#[tokio::test]
#[limit]
async fn a_request_that_loses_its_lock_is_stopped_and_one_that_is_dropped_gives_it_back() {
    let locks = LockManager::in_memory();
    let served = stuck(&locks).await;
    served.abort();
    let freed = locks.lock(key_of("/7")).with_wait(Duration::from_secs(60)).await.unwrap();
    freed.release().await.unwrap();

    let served = stuck(&locks).await;
    locks.shutdown(Duration::from_secs(5)).await;
    let response = served.await.unwrap();
    assert_eq!((response.status(), response.headers().get("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, None));
    assert_eq!(problem(response).await["code"], "lock_lost");
}

#[tokio::test]
#[limit]
async fn any_body_is_served_and_whoever_has_no_lock_to_take_passes() {
    let locks = LockManager::in_memory();
    let guard = locks.lock(key_of("/7")).await.unwrap();
    let request = |path: &str| http::Request::put(path).body(7).unwrap();
    let inner = service_fn(|request: http::Request<i32>| {
        ready(Ok::<_, Infallible>(Response::new(Full::<axum::body::Bytes>::from(request.into_body().to_string()))))
    });
    let service = by_path(&locks).layer(inner);
    assert_eq!(service.clone().oneshot(request("/7")).await.unwrap().status(), 409);
    assert_eq!(service.oneshot(request("/8")).await.unwrap().status(), 200);

    // A body that cannot be made from text.
    let inner = service_fn(|_: http::Request<i32>| ready(Ok::<_, Infallible>(Response::new(true))));
    let layer = by_path(&locks)
        .refuse_with(|error: LockError| Response::builder().status(error.http_status()).body(false).unwrap());
    let refused = layer.layer(inner).oneshot(request("/7")).await.unwrap();
    assert_eq!((refused.status(), refused.body()), (StatusCode::CONFLICT, &false));

    let of_writes = LockLayer::new(move |request: &http::Request<i32>| {
        (request.method() != "GET").then(|| locks.lock(key_of("/7")).without_waiting())
    });
    let inner = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let service = of_writes.layer(inner);
    let read = http::Request::get("/7").body(7).unwrap();
    assert_eq!(service.clone().oneshot(read).await.unwrap().status(), 200);
    assert_eq!(service.oneshot(request("/7")).await.unwrap().status(), 409);
    drop(guard);
}
