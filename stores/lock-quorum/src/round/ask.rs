//! One question to several members at once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use lock_store::contract::backend::BoxFuture;
use lock_store::types::system::clock::{Clock, Timestamp};

/// Questions to the members that are not answered yet, by member.
pub(crate) struct PendingAnswers<T>(Vec<Option<BoxFuture<'static, T>>>);

impl<T> PendingAnswers<T> {
    /// Puts a question to some of the members.
    pub(crate) fn of(questions: impl Iterator<Item = Option<BoxFuture<'static, T>>>) -> Self {
        Self(questions.collect())
    }

    /// Waits for the next answer. `None` when all have come. Safe to drop: no answer gets lost.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| {
            let mut waiting = false;
            for (member, question) in self.0.iter_mut().enumerate() {
                let Some(asked) = question else { continue };
                if let Poll::Ready(answer) = asked.as_mut().poll(context) {
                    *question = None;
                    return Poll::Ready(Some((member, answer)));
                }
                waiting = true;
            }
            if waiting { Poll::Pending } else { Poll::Ready(None) }
        })
        .await
    }

    /// Notes answers until they decide, all have come, or the time is over. Safe to drop.
    pub(crate) async fn fill<S: ?Sized>(
        &mut self,
        clock: &Clock,
        until: Timestamp,
        state: &mut S,
        is_decided: impl Fn(&S) -> bool,
        mut note: impl FnMut(&mut S, usize, T),
    ) {
        let mut limit = pin!(clock.sleep_until(until));
        while !is_decided(state) {
            tokio::select! {
                biased;
                answer = self.next() => match answer {
                    Some((member, answer)) => note(state, member, answer),
                    None => return,
                },
                () = &mut limit => return,
            }
        }
    }
}
