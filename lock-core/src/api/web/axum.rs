//! axum: the manager as an argument of a handler.

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use crate::api::manager::LockManager;
use lock_store::types::error::LockError;

/// Gives a handler the manager of the router's `Extension`. Without one, it gives the manager that the attribute would
/// use.
///
/// ```no_run
/// use lock_core::{LockError, LockManager, lock_key};
///
/// async fn charge(locks: LockManager) -> Result<&'static str, LockError> {
///     let user = 42;
///     locks.lock(lock_key!("user:<user>")).run(async |_| Ok("charged")).await
/// }
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # use axum::{Extension, Router, routing::post};
/// let locks = LockManager::connect("redis://127.0.0.1/").await?;
/// let app: Router = Router::new().route("/charge", post(charge)).layer(Extension(locks));
/// # Ok(())
/// # }
/// ```
impl<S: Send + Sync> FromRequestParts<S> for LockManager {
    type Rejection = LockError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, LockError> {
        parts.extensions.get::<Self>().cloned().map_or_else(Self::try_current, Ok)
    }
}
