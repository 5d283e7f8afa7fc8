//! Other options for one call of an annotated function.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::api::lock::LockRequest;
use crate::engine::context;

tokio::task_local! {
    static OVERRIDES: Arc<Layer>;
}

/// Options of one [`overriding`], with those of the scopes around it.
struct Layer {
    set: Box<dyn Fn(LockRequest) -> LockRequest + Send + Sync>,
    /// The innermost lock around the place where the scope was opened.
    place: Option<context::CodePlace>,
    outer: Option<Arc<Layer>>,
}

/// Changes the options of annotated functions for the calls made in its scope.
///
/// `set` gets the request as the attribute made it, and its settings win. It applies to calls that are made directly in
/// the scope. It does not apply to calls that a locked body makes in turn, or to tasks that the scope spawns.
///
/// ```
/// use std::time::Duration;
///
/// use lock_core::{LockError, LockManager, distributed_lock, overriding};
///
/// #[distributed_lock(key = "charge:<user>", wait = "5s")]
/// async fn charge(user: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # LockManager::in_memory().install()?;
/// // A nightly run has more time than a request.
/// overriding(|request| request.with_wait(Duration::from_secs(60))).scope(charge(7)).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is changed outside of its scope; call scope or call"]
pub fn overriding(set: impl Fn(LockRequest) -> LockRequest + Send + Sync + 'static) -> Overriding {
    Overriding { set: Box::new(set) }
}

/// Options for the calls in a scope. Made by [`overriding`].
///
/// See the example of [`overriding`].
#[must_use = "nothing is changed outside of its scope; call scope or call"]
pub struct Overriding {
    set: Box<dyn Fn(LockRequest) -> LockRequest + Send + Sync>,
}

impl Overriding {
    /// Runs a future in the scope, on any executor.
    ///
    /// # Cancel safety
    ///
    /// As safe as `future`.
    pub async fn scope<T>(self, future: impl Future<Output = T>) -> T {
        OVERRIDES.scope(self.layer(), future).await
    }

    /// Runs a function in the scope, for synchronous code.
    pub fn call<T>(self, function: impl FnOnce() -> T) -> T {
        OVERRIDES.sync_scope(self.layer(), function)
    }

    fn layer(self) -> Arc<Layer> {
        let outer = OVERRIDES.try_with(Arc::clone).ok();
        Arc::new(Layer { set: self.set, place: context::place(), outer })
    }
}

impl fmt::Debug for Overriding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overriding")
    }
}

/// Applies the settings of the scopes around this call, the innermost last.
pub(crate) fn apply(request: LockRequest) -> LockRequest {
    let Ok(layer) = OVERRIDES.try_with(Arc::clone) else { return request };
    let mut layers = Vec::new();
    let mut next = Some(&layer);
    while let Some(layer) = next {
        layers.push(layer);
        next = layer.outer.as_ref();
    }
    let here = context::place();
    layers.into_iter().rev().filter(|layer| layer.place == here).fold(request, |request, layer| (layer.set)(request))
}
