//! Where rounds run: on the keeper, so that they go on after they have answered.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use crate::Quorum;
use crate::shared::Shared;
use lock_store::contract::backend::BoxFuture;
use lock_store::types::error::{LockError, Result};

impl Quorum {
    /// Runs a round on the keeper, where it goes on after it has answered. Without a keeper, it runs here. It is
    /// dropped with this future, unless it has answered.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        round: impl Future<Output = (T, Rest)> + Send + 'static,
    ) -> Result<T> {
        let home = self.shared.home.lock().first().cloned();
        let home = home.or_else(|| Handle::try_current().ok()).ok_or_else(|| {
            LockError::misconfigured("the quorum was polled outside of a tokio runtime; call it from a task of one")
        })?;
        let (mut sender, receiver) = oneshot::channel();
        home.spawn(async move {
            tokio::select! {
                biased;
                () = sender.closed() => {}
                (answer, rest) = round => {
                    let _ = sender.send(answer);
                    rest.0.await;
                }
            }
        });
        receiver.await.map_err(|_| LockError::unavailable("the runtime that drove the lock manager has ended"))
    }
}

/// The work of a round after its answer.
pub(super) struct Rest(BoxFuture<'static, ()>);

impl Rest {
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }

    pub(super) fn nothing() -> Self {
        Self(Box::pin(Nothing))
    }
}

/// Nothing: needs no room on the heap.
struct Nothing;

impl Future for Nothing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Notes where rounds run, until it is dropped.
pub(super) struct Home<'a> {
    shared: &'a Shared,
    id: Id,
}

impl<'a> Home<'a> {
    pub(super) fn here(shared: &'a Shared) -> Self {
        let handle = Handle::current();
        let id = handle.id();
        shared.home.lock().push(handle);
        Self { shared, id }
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        self.shared.home.lock().retain(|home| home.id() != self.id);
    }
}
