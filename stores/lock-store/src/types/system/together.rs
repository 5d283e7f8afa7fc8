//! Several futures of one task.

use std::future::poll_fn;
use std::task::Poll;

/// Polls futures together, so that a store can combine their calls, until all are done. Returns their outputs in order.
pub async fn all<T>(calls: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (Box::pin(call), None)).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (call, answer) in calls.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match call.as_mut().poll(cx) {
                Poll::Ready(done) => *answer = Some(done),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}
