//! Looking at the members, without taking anything.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::round::ask::PendingAnswers;
use crate::round::{self, Who};
use crate::shared::Shared;
use lock_store::contract::backend::{BoxFuture, DynBackend, JobRecord, NodeReport, SyncReport};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Clock;

/// How long members may take to say which lists are in use.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// How long a majority may take to answer when it is asked whether it is there: less than who asks waits.
pub(super) const MAJORITY: Duration = Duration::from_secs(4);

/// How long the others may take, which could refuse us: a minority that hangs keeps nobody.
const OTHERS: Duration = Duration::from_secs(1);

/// Learns which lists of members are in use, before this process has its own remembered anywhere or asks for a lock:
/// another list may be known to one member alone, which no majority has to ask.
pub(super) async fn lists(shared: &Arc<Shared>, within: Duration) {
    if shared.lists_read.load(Ordering::Acquire) {
        return;
    }
    let ask = |member: usize| -> Option<BoxFuture<'static, _>> {
        let shared = Arc::clone(shared);
        Some(Box::pin(async move { shared.members[member].read(&shared.list).await }))
    };
    asked(shared, within, ask, |_| false).await;
    shared.lists_read.store(true, Ordering::Release);
}

/// Checks that a majority answers, and that no member refuses us.
pub(super) async fn ping(shared: &Arc<Shared>) -> Result<()> {
    lists(shared, PATIENCE).await;
    shared.admit_list()?;
    let mut asked = PendingAnswers::of((0..shared.members.len()).map(|member| {
        let shared = Arc::clone(shared);
        Some(Box::pin(async move {
            shared.members[member].backend().ping().await?;
            Ok(shared.members[member].join(&shared.list).await)
        }) as BoxFuture<'static, Result<Result<()>>>)
    }));
    let (all, majority) = (shared.members.len(), shared.list.majority);
    let (clock, began) = (shared.clock(), shared.clock().now());
    let (mut up, mut refused) = (0, None);
    let mut missing = vec![Some("it did not answer in time".to_owned()); all];
    loop {
        let is_decided = up >= majority || refused.is_some();
        let answer = tokio::select! {
            biased;
            answer = asked.next() => answer,
            () = clock.sleep_until(began.after(if is_decided { OTHERS } else { MAJORITY })) => None,
        };
        match answer {
            None => break,
            Some((member, Ok(Ok(())))) => (up, missing[member]) = (up + 1, None),
            Some((_, Ok(Err(error)))) if !error.is_transient() => return Err(error),
            Some((_, Err(error))) if !error.is_transient() => refused = refused.or(Some(error)),
            Some((member, Ok(Err(error)) | Err(error))) => missing[member] = Some(error.to_string()),
        }
    }
    if let Some(error) = refused {
        return Err(match up {
            0 => error,
            _ => LockError::misconfigured(format!(
                "{error}; other members of the quorum accept this user, so correct this member"
            )),
        });
    }
    if up >= majority {
        // A member may have answered too late to be known before.
        return shared.admit_list();
    }
    let missing =
        shared.members.iter().zip(missing).filter_map(|(member, why)| Some(format!("{}: {}", member.name, why?)));
    Err(LockError::not_executed(format!(
        "only {up} of {all} members answer, and {majority} must; bring them back, or correct their addresses ({})",
        missing.collect::<Vec<_>>().join("; "),
    )))
}

/// How long a caller that reads waits for a majority.
pub(super) const READ: Duration = Duration::from_secs(1);

/// How long the others may take when a majority has told of the last run: one of them may know a newer.
const NEWER: Duration = Duration::from_millis(50);

/// The answers of some members. `None` while a member has not answered.
pub(super) type Answers<T> = [Option<Result<T>>];

/// Asks members at once, until the answers decide, all have come or the time is over. Also returns the questions that
/// are still open.
pub(super) async fn asked<T: Clone>(
    shared: &Shared,
    within: Duration,
    ask: impl Fn(usize) -> Option<BoxFuture<'static, Result<T>>>,
    decide: impl Fn(&Answers<T>) -> bool,
) -> (Vec<Option<Result<T>>>, PendingAnswers<Result<T>>) {
    let mut answers = vec![None; shared.members.len()];
    let mut pending = PendingAnswers::of((0..answers.len()).map(ask));
    collect(shared.clock(), within, &mut pending, &mut answers, decide).await;
    (answers, pending)
}

/// Collects answers until they decide, all have come or the time is over.
pub(super) async fn collect<T>(
    clock: &Clock,
    within: Duration,
    pending: &mut PendingAnswers<Result<T>>,
    answers: &mut Answers<T>,
    decide: impl Fn(&Answers<T>) -> bool,
) {
    let note = |answers: &mut Answers<T>, member: usize, answer| answers[member] = Some(answer);
    pending.fill(clock, clock.now().after(within), answers, decide, note).await;
}

/// Returns the answer of a member, which is an error if there was none in time.
pub(super) fn in_time<T>(answer: Option<Result<T>>) -> Result<T> {
    answer.unwrap_or_else(|| Err(LockError::unavailable("it did not answer in time")))
}

/// Names the members that answered. A member that has not answered has an error.
pub(super) fn named<T>(shared: &Shared, answers: Vec<Option<Result<T>>>) -> SyncReport<T> {
    let members = shared.members.iter().zip(answers);
    let nodes = members.map(|(member, answer)| NodeReport::new(Arc::clone(&member.name), in_time(answer)));
    SyncReport::new(nodes.collect(), shared.list.majority)
}

/// Asks the members who holds a key, until a majority says so, or says enough that none can.
pub(super) async fn holder(shared: &Shared, key: &LockKey) -> Result<Option<Holder>> {
    let (all, majority) = (shared.members.len(), shared.list.majority);
    let ask = |member: usize| Some(shared.members[member].backend().holder(key.clone()));
    let is_decided = |answers: &Answers<_>| !matches!(round::holder(answers, majority), Who::Unknown);
    let (answers, _) = asked(shared, READ, ask, is_decided).await;
    match round::holder(&answers, majority) {
        Who::Holder(holder) => Ok(Some(holder)),
        Who::Nobody => Ok(None),
        Who::Unknown => {
            let says = format!(
                "it is unknown who holds the lock: no {majority} of {all} members agree, and the silent ones would decide",
            );
            Err(named(shared, answers).undecided(&says).with_key(key))
        }
    }
}

/// Asks every member who holds a key.
pub(super) async fn sync(shared: &Shared, key: &LockKey) -> SyncReport {
    let ask = |member: usize| Some(shared.members[member].backend().holder(key.clone()));
    let (answers, _) = asked(shared, READ, ask, |_| false).await;
    named(shared, answers)
}

/// Asks every member for the last run of a job. A run that a majority has noted is known to a member of any majority.
pub(super) async fn last_run(
    shared: &Shared,
    ask: impl Fn(Arc<dyn DynBackend>) -> BoxFuture<'static, Result<Option<JobRecord>>>,
) -> Result<Option<JobRecord>> {
    let ask = |member: usize| Some(ask(shared.members[member].backend()));
    let is_majority = |answers: &Answers<_>| answers.iter().flatten().flatten().count() >= shared.list.majority;
    let (mut answers, mut late) = asked(shared, READ, ask, is_majority).await;
    collect(shared.clock(), NEWER, &mut late, &mut answers, |_| false).await;
    let answers = named(shared, answers);
    if !answers.has_majority() {
        return Err(answers.undecided("too few members answered in time; bring them back"));
    }
    Ok(together(answers.known().flatten().cloned().collect()))
}

/// Returns the newest run, and since when none has succeeded as far as any member knows: one that missed the last success
/// knows of an older one, or of nothing before the run that failed.
pub(super) fn together(records: Vec<JobRecord>) -> Option<JobRecord> {
    let knows_more = |record: &&JobRecord| record.succeeded || record.without_success_for > record.started_ago;
    let times = || records.iter().map(|record| record.without_success_for);
    let known = records.iter().filter(knows_more).map(|record| record.without_success_for).min();
    let without_success_for = known.or_else(|| times().max())?;
    let mut newest = records.into_iter().min_by_key(|record| record.started_ago)?;
    newest.without_success_for = without_success_for;
    Some(newest)
}
