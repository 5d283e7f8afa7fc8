//! How callers give up their thread: blocking entry points for synchronous code, and room for other tasks.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Drives a future on this thread. The keeper wakes it, so no runtime is needed.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    // A tokio task has a budget of polls before it must yield. A blocked thread never yields, so without
    // `unconstrained` its next wait would never end.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}

/// Hands an error on after every other task that is ready was polled.
///
/// A request that fails at once would otherwise end without a pause. A loop around it would keep its thread, and the
/// runtime could not end. Needs no runtime.
pub async fn yielding<T, E>(outcome: Result<T, E>) -> Result<T, E> {
    let mut has_yielded = outcome.is_ok();
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    outcome
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
