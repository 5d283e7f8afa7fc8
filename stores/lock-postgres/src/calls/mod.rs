//! From calls to statements, and from their rows to answers.

mod about;
mod beside;
pub(crate) mod call;
pub(crate) mod context;
mod inspect;
mod locks;
mod marks;
mod pins;
pub(crate) mod renew;
mod values;
pub(crate) mod waiting;

use lock_core::{LockError, LockKey};

use crate::calls::call::{Batch, Call, Sent};
use crate::calls::context::Context;
use crate::calls::locks::{acquire, holder, release};
use crate::error::{has_moved_away, is_blocked};
use crate::session::Session;

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

/// Adds to an error which transaction keeps the row of the only key locked.
async fn explain(context: &Context, session: &Session, keys: &[LockKey], error: &mut LockError) {
    if let [key] = keys
        && is_blocked(error)
        && let Some(pin) = pins::locked(context, session, key).await
    {
        let text = format!("{error}; it is {}", pin.sentence());
        *error = LockError::not_executed(text).with_key(key).with_source(error.clone());
    }
}

/// Sends a batch, and gives everybody an answer.
pub(crate) async fn send(context: &Context, session: &Session, batch: Batch) -> Sent {
    let mut sent = Sent::default();
    let keys = batch.keys();
    let mut failed = None;
    match batch {
        Batch::Acquires(asked) => {
            if let Some(mut it) = acquire(context, session, asked).await {
                explain(context, session, &keys, &mut it.error).await;
                failed = Some(it.answer(keys.len(), Call::Acquire, &mut sent.again));
            }
        }
        Batch::Releases(asked) => {
            if let Some(mut it) = release(context, session, asked).await {
                explain(context, session, &keys, &mut it.error).await;
                failed = Some(it.answer(keys.len(), Call::Release, &mut sent.again));
            }
        }
        Batch::One(call) => match *call {
            Call::Acquire(one) => return Box::pin(send(context, session, Batch::Acquires(vec![one]))).await,
            Call::Release(one) => return Box::pin(send(context, session, Batch::Releases(vec![one]))).await,
            Call::Renew(one) => {
                if let Some(late) = renew::renew(context, session, one).await {
                    late.answer();
                }
            }
            Call::AcquireAll(one) => {
                let answer = beside::acquire_all(context, session, &one.question, one.since).await;
                failed = answer.as_ref().err().cloned();
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
                failed = answer.as_ref().err().cloned();
                drop(one.answer.send(answer));
            }
            Call::ForgetDone(one) => {
                let answer = marks::forget(context, session, &one.question).await;
                failed = answer.as_ref().err().cloned();
                drop(one.answer.send(answer));
            }
            Call::Scan(one) => drop(one.answer.send(inspect::scan(context, session, &one.question).await)),
            Call::Entry(one) => drop(one.answer.send(inspect::entry(context, session, &one.question).await)),
            Call::Waiters(one) => drop(one.answer.send(inspect::waiters(context, session, &one.question).await)),
            Call::Revoke(one) => {
                let mut answer = inspect::revoke(context, session, &one.question).await;
                if let Err(error) = &mut answer {
                    explain(context, session, &keys, error).await;
                }
                failed = answer.as_ref().err().cloned();
                drop(one.answer.send(answer));
            }
            Call::Ping(one) => drop(one.answer.send(session.run("SELECT 1").await)),
            Call::Sweep(one) => drop(one.answer.send(beside::sweep(context, session).await)),
        },
    }
    match failed {
        None => sent.free = keys,
        Some(error) => {
            sent.moved_away = has_moved_away(&error);
            if is_blocked(&error) && sent.again.is_empty() {
                sent.blocked = keys;
            }
        }
    }
    sent
}
