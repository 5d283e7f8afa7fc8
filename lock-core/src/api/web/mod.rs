//! What web frameworks use: the manager as an argument of a handler, and a layer that holds a lock around a request.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tower")]
mod layer;

#[cfg(feature = "tower")]
pub use layer::{LockLayer, LockService, ProblemResponse, Refuse};
