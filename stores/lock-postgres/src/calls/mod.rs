//! From calls to statements, and from their rows to answers.

mod about;
mod beside;
pub(crate) mod call;
pub(crate) mod context;
mod inspect;
mod locks;
mod marks;
mod values;

use lock_core::LockError;

use crate::calls::call::{Batch, Call};
use crate::calls::context::Context;
use crate::calls::locks::{acquire, holder, release, renew};
use crate::error::has_moved_away;
use crate::session::Session;

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// The server takes no writes: another one may be the primary now.
    pub(crate) moved_away: bool,
}

/// Gives everybody the error because of which nothing was sent.
pub(crate) fn refuse(batch: Batch, error: &LockError) {
    match batch {
        Batch::Acquires(asked) => asked.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone())))),
        Batch::Releases(asked) => asked.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone())))),
        Batch::One(call) => match *call {
            Call::Acquire(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Release(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Renew(one) => {
                let count = one.question.len();
                drop(one.answer.send(vec![Err(error.clone()); count]));
            }
            Call::AcquireAll(one) => drop(one.answer.send(Err(error.clone()))),
            Call::SetBlocked(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Blocked(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Holder(one) => drop(one.answer.send(Err(error.clone()))),
            Call::LastRun(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Done(one) => drop(one.answer.send(Err(error.clone()))),
            Call::MarkDone(one) => drop(one.answer.send(Err(error.clone()))),
            Call::ForgetDone(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Scan(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Entry(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Waiters(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Revoke(one) => drop(one.answer.send(Err(error.clone()))),
            Call::Ping(one) | Call::Sweep(one) => drop(one.answer.send(Err(error.clone()))),
        },
    }
}

/// Sends a batch, and gives everybody an answer.
pub(crate) async fn send(context: &Context, session: &Session, batch: Batch) -> Sent {
    let mut sent = Sent::default();
    let mut look = |error: &LockError| sent.moved_away |= has_moved_away(error);
    match batch {
        Batch::Acquires(asked) => acquire(context, session, asked).await.iter().for_each(&mut look),
        Batch::Releases(asked) => release(context, session, asked).await.iter().for_each(&mut look),
        Batch::One(call) => match *call {
            Call::Acquire(one) => acquire(context, session, vec![one]).await.iter().for_each(&mut look),
            Call::Release(one) => release(context, session, vec![one]).await.iter().for_each(&mut look),
            Call::Renew(one) => {
                let answers = renew(context, session, &one.question).await;
                answers.iter().filter_map(|answer| answer.as_ref().err()).take(1).for_each(&mut look);
                drop(one.answer.send(answers));
            }
            Call::AcquireAll(one) => {
                let answer = beside::acquire_all(context, session, &one.question, one.since).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::SetBlocked(one) => {
                let (key, blocked) = &one.question;
                drop(one.answer.send(beside::set_blocked(context, session, key, blocked.as_ref()).await));
            }
            Call::Blocked(one) => drop(one.answer.send(beside::blocked(context, session, &one.question).await)),
            Call::Holder(one) => drop(one.answer.send(holder(context, session, &one.question).await)),
            Call::LastRun(one) => drop(one.answer.send(beside::last_run(context, session, &one.question).await)),
            Call::Done(one) => drop(one.answer.send(marks::done(context, session, &one.question).await)),
            Call::MarkDone(one) => {
                let answer = marks::mark(context, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::ForgetDone(one) => {
                let answer = marks::forget(context, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::Scan(one) => drop(one.answer.send(inspect::scan(context, session, &one.question).await)),
            Call::Entry(one) => drop(one.answer.send(inspect::entry(context, session, &one.question).await)),
            Call::Waiters(one) => drop(one.answer.send(inspect::waiters(context, session, &one.question).await)),
            Call::Revoke(one) => {
                let answer = inspect::revoke(context, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::Ping(one) => drop(one.answer.send(session.run("SELECT 1").await)),
            Call::Sweep(one) => drop(one.answer.send(beside::sweep(context, session).await)),
        },
    }
    sent
}
