//! Where a caller's future runs: on tokio, or on an executor without tokio.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

#[derive(Clone, Copy)]
pub(crate) enum Executor {
    Tokio,
    Own,
}

impl Executor {
    pub(crate) async fn pause(self, by: Duration) {
        match self {
            Self::Tokio => tokio::time::sleep(by).await,
            // This executor runs one future only, so it may block its thread.
            Self::Own => std::thread::sleep(by),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, without timers and without I/O.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
