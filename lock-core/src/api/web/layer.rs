//! tower: a layer that holds a lock around a request.

use std::fmt;
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::api::lock::LockRequest;
use lock_store::types::error::LockError;
use lock_store::types::error::web::refusal;

/// Holds a lock while a request is served. Requests with the same key are served one after the other, in the whole
/// fleet.
///
/// The lock is made from the head of the request, with the options it needs. `None` serves the request without a lock.
/// The lock is taken before the inner service is called, and released after the service has made its response and
/// before the response is sent. A client that has the response therefore does not meet its own lock, and a client that
/// reads slowly blocks no other caller.
///
/// A response body that still *works* while it is streamed is not covered. In that case, take the lock in the handler
/// and move the guard into the stream. The inner service reads the request's body, so it does that under the lock.
/// Limit how long that may take, or how long the lock may be held ([`with_max_hold`](LockRequest::with_max_hold)).
///
/// A request that reaches this layer was accepted. While the manager [drains](crate::LockManager::drain), the request
/// still gets its lock, and the locks that it takes inside, until the drain's time is nearly up. The server stops
/// accepting by [`stopping`](crate::LockManager::stopping).
///
/// If the lock is lost, the inner service is dropped at its next await and the request is refused. Inside of the inner
/// service, [`current_lock`](crate::current_lock) finds the lock with its fencing token.
///
/// ```
/// use axum::{Router, extract::Request, routing::put};
/// use lock_core::{LockLayer, LockManager, lock_key};
///
/// let locks = LockManager::in_memory();
/// let one_at_a_time = LockLayer::new(move |request: &Request| {
///     let path = request.uri().path();
///     locks.lock(lock_key!("request:<path>")).without_waiting()
/// });
/// let app: Router = Router::new().route("/carts/{id}", put(async || "kept").layer(one_at_a_time));
/// ```
///
/// A refusal is a response like [`LockError::http_status`] and [`problem_json`](LockError::problem_json), for every
/// body type that can be made from a `String`. For other types see [`refuse_with`](Self::refuse_with).
#[derive(Clone)]
pub struct LockLayer<F, R = ProblemResponse> {
    lock_of: F,
    refuse: R,
}

impl<F> LockLayer<F> {
    /// Creates a layer from a function that makes the lock of a request.
    pub fn new<B, L>(lock_of: F) -> Self
    where
        F: Fn(&Request<B>) -> L,
        L: Into<Option<LockRequest>>,
    {
        Self { lock_of, refuse: ProblemResponse }
    }

    /// Sets the function that makes the response to a request that does not get its lock.
    pub fn refuse_with<B, R>(self, refuse: R) -> LockLayer<F, R>
    where
        R: Fn(LockError) -> Response<B>,
    {
        LockLayer { lock_of: self.lock_of, refuse }
    }
}

impl<S, F: Clone, R: Clone> Layer<S> for LockLayer<F, R> {
    type Service = LockService<S, F, R>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, layer: self.clone() }
    }
}

impl<F, R> fmt::Debug for LockLayer<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockLayer")
    }
}

/// A service that runs its requests under a lock. Made by [`LockLayer`].
///
/// See the example of [`LockLayer`].
#[derive(Clone)]
pub struct LockService<S, F, R = ProblemResponse> {
    inner: S,
    layer: LockLayer<F, R>,
}

impl<S: fmt::Debug, F, R> fmt::Debug for LockService<S, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockService").field(&self.inner).finish()
    }
}

impl<S, F, R, L, B, A> Service<Request<B>> for LockService<S, F, R>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: Fn(&Request<B>) -> L,
    L: Into<Option<LockRequest>>,
    R: Refuse<A> + Clone + Send + 'static,
    B: Send + 'static,
    A: Send,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let lock: Option<LockRequest> = (self.layer.lock_of)(&request).into();
        // The service that is ready serves this request. Its clone serves the next.
        let next = self.inner.clone();
        let mut ready = replace(&mut self.inner, next);
        let Some(lock) = lock else { return Box::pin(ready.call(request)) };
        let refuse = self.layer.refuse.clone();
        // The request was accepted, so it is served during a drain.
        let (lock, work) = lock.accepted();
        Box::pin(async move {
            let _is_served = work;
            match lock.run(async move |_| Ok::<_, LockError>(ready.call(request).await)).await {
                Ok(served) => served,
                Err(error) => Ok(refuse.refuse(error)),
            }
        })
    }
}

/// Makes the response to a request that does not get its lock: [`ProblemResponse`], or any function from a
/// [`LockError`].
///
/// ```
/// use http::{Response, StatusCode};
/// use lock_core::{LockError, Refuse};
///
/// fn later(error: LockError) -> Response<String> {
///     let mut response = Response::new(error.to_string());
///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
///     response
/// }
///
/// fn accepts(_: impl Refuse<String>) {}
/// accepts(later);
/// ```
pub trait Refuse<B> {
    /// Makes the response.
    fn refuse(&self, error: LockError) -> Response<B>;
}

/// Answers in the format of RFC 9457, see [`LockLayer`].
///
/// See the example of [`LockLayer`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ProblemResponse;

impl<B: From<String>> Refuse<B> for ProblemResponse {
    fn refuse(&self, error: LockError) -> Response<B> {
        refusal(error)
    }
}

impl<B, F: Fn(LockError) -> Response<B>> Refuse<B> for F {
    fn refuse(&self, error: LockError) -> Response<B> {
        self(error)
    }
}
