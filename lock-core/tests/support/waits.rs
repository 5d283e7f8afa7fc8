//! Waits, and what is told of them.

use std::sync::{Arc, Mutex};

use lock_core::store::WaitProgress;
use lock_core::{LockEvent, LockGuard, LockManager, LockObserver, Result, Wait};
use tokio::task::JoinHandle;

/// The messages of a wait, in their order.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<WaitProgress>>>);

impl Told {
    pub(crate) fn note(&self) -> impl Fn(&WaitProgress) + Send + Sync + 'static + use<> {
        let told = self.clone();
        move |progress| told.0.lock().unwrap().push(progress.clone())
    }

    pub(crate) fn all(&self) -> Vec<WaitProgress> {
        self.0.lock().unwrap().clone()
    }
}

impl LockObserver for Told {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_waiting(&self, progress: &WaitProgress) {
        self.note()(progress);
    }
}

/// Waits for the lock `k`.
pub(crate) fn wait(locks: &LockManager, wait: impl Into<Wait>, told: &Told) -> JoinHandle<Result<LockGuard>> {
    let request = locks.lock("k").with_wait(wait.into()).with_site("shop::refund").on_waiting(told.note());
    tokio::spawn(request.acquire())
}
