//! Looking at the members, without taking anything.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::round::ask::PendingAnswers;
use crate::round::{self, Who};
use crate::shared::Shared;
use lock_store::contract::backend::{BoxFuture, JobRecord, NodeReport, SyncReport};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;

/// How long members may take to say which lists are in use.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// How long a majority may take to answer when it is asked whether it is there: less than who asks waits.
const MAJORITY: Duration = Duration::from_secs(4);

/// How long the others may take, which could refuse us: a minority that hangs keeps nobody.
const OTHERS: Duration = Duration::from_secs(1);

/// Learns which lists of members are in use, before this process has its own remembered anywhere or asks for a lock:
/// another list may be known to one member alone, which no majority has to ask.
pub(super) async fn lists(shared: &Arc<Shared>, within: Duration) {
    if shared.lists_read.load(Ordering::Acquire) {
        return;
    }
    let mut asked = PendingAnswers::of((0..shared.members.len()).map(|member| {
        let shared = Arc::clone(shared);
        Some(Box::pin(async move { shared.members[member].read(&shared.list).await }) as BoxFuture<'static, _>)
    }));
    let clock = shared.clock();
    let mut limit = pin!(clock.sleep_until(clock.now().after(within)));
    loop {
        tokio::select! {
            biased;
            answer = asked.next() => if answer.is_none() { break },
            () = &mut limit => break,
        }
    }
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
                "{error}; other members of the quorum accept this user, so correct \
                    this member"
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

/// How long who reads may have to wait for a majority.
const READ: Duration = Duration::from_secs(1);

/// How long the others may take when a majority has told of the last run: one of them may know a newer.
const NEWER: Duration = Duration::from_millis(50);

/// Asks the members who holds a key, until a majority says so, or says enough that none can.
pub(super) async fn holder(shared: &Arc<Shared>, key: &LockKey) -> Result<Option<Holder>> {
    let mut asked = PendingAnswers::of(shared.members.iter().map(|member| Some(member.backend().holder(key.clone()))));
    let (clock, began) = (shared.clock(), shared.clock().now());
    let mut answers = vec![None; shared.members.len()];
    loop {
        match round::holder(&answers, shared.list.majority) {
            Who::Holder(holder) => return Ok(Some(holder)),
            Who::Nobody => return Ok(None),
            Who::Unknown => {}
        }
        let answer = tokio::select! {
            biased;
            answer = asked.next() => answer,
            () = clock.sleep_until(began.after(READ)) => None,
        };
        match answer {
            Some((member, answer)) => answers[member] = Some(answer),
            None => break,
        }
    }
    let refused = |answer: &&Option<Result<_>>| matches!(answer, Some(Err(error)) if !error.is_transient());
    if answers.iter().filter(refused).count() > answers.len() - shared.list.majority
        && let Some(Some(Err(error))) = answers.iter().find(refused)
    {
        return Err(error.clone().with_key(key));
    }
    let said = shared.members.iter().zip(answers).filter_map(|(member, answer)| match answer {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(format!("{}: {error}", member.name)),
        None => Some(format!("{} did not answer in time", member.name)),
    });
    let (all, majority) = (shared.members.len(), shared.list.majority);
    let error = LockError::unavailable(format!(
        "it is unknown who holds the lock: no {majority} of {all} members agree, and the silent ones would decide ({})",
        said.collect::<Vec<_>>().join("; "),
    ));
    Err(error.with_key(key))
}

/// Asks every member who holds a key.
pub(super) async fn sync(shared: &Arc<Shared>, key: &LockKey) -> SyncReport {
    let unknown = || Err(LockError::unavailable("it did not answer in time"));
    let mut nodes: Vec<NodeReport> =
        shared.members.iter().map(|member| NodeReport::new(&*member.name, unknown())).collect();
    let mut asked = PendingAnswers::of(shared.members.iter().map(|member| Some(member.backend().holder(key.clone()))));
    let clock = shared.clock();
    let mut limit = pin!(clock.sleep_until(clock.now().after(READ)));
    loop {
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some((member, holder)) => nodes[member].holder = holder,
                None => break,
            },
            () = &mut limit => break,
        }
    }
    SyncReport::new(nodes, shared.list.majority)
}

/// Asks every member for the last run of a job: a run that a majority has noted is known to one of any majority.
pub(super) async fn last_run(shared: &Arc<Shared>, key: &LockKey) -> Result<Option<JobRecord>> {
    let mut asked =
        PendingAnswers::of(shared.members.iter().map(|member| Some(member.backend().last_run(key.clone()))));
    let clock = shared.clock();
    let mut until = clock.now().after(READ);
    let (mut answered, mut records, mut why) = (0, Vec::new(), None);
    loop {
        if answered >= shared.list.majority {
            until = until.min(clock.now().after(NEWER));
        }
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some((_, Ok(record))) => {
                    answered += 1;
                    records.extend(record);
                }
                Some((_, Err(error))) => why = Some(error),
                None => break,
            },
            () = clock.sleep_until(until) => break,
        }
    }
    if answered >= shared.list.majority {
        return Ok(together(records));
    }
    Err(why.unwrap_or_else(|| LockError::unavailable("too few members answered in time; bring them back")))
}

/// Returns the newest run, and since when none has succeeded as far as any member knows: one that missed the last success
/// knows of an older one, or of nothing before the run that failed.
fn together(records: Vec<JobRecord>) -> Option<JobRecord> {
    let knows_more = |record: &&JobRecord| record.succeeded || record.without_success_for > record.started_ago;
    let times = || records.iter().map(|record| record.without_success_for);
    let known = records.iter().filter(knows_more).map(|record| record.without_success_for).min();
    let without_success_for = known.or_else(|| times().max())?;
    let mut newest = records.into_iter().min_by_key(|record| record.started_ago)?;
    newest.without_success_for = without_success_for;
    Some(newest)
}
