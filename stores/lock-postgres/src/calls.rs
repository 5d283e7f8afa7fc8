//! From calls to statements, and from their rows to answers.

mod beside;
pub(crate) mod inspect;
pub(crate) mod marks;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{
    AcquireRequest, Attempt, Claim, Freed, Holder, LockError, LockKey, Release, Renewal, Result, Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::about;
use crate::error::has_moved_away;
use crate::pin::{signed, unsigned};
use crate::runner::{Asked, Batch, Call, Shared};
use crate::session::Session;

/// How soon a waiter asks again for a lock that an open transaction keeps: nobody tells it of the end of that.
const PINNED: Duration = Duration::from_millis(50);

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// The server takes no writes: another one may be the primary now.
    pub(crate) moved_away: bool,
}

/// The server's clock, as its last answer showed it.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<(Timestamp, i64)>>);

impl ServerTime {
    pub(crate) fn set(&self, heard: Timestamp, micros: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((heard, micros));
    }

    /// Returns which time the server's clock shows after a while, or a little earlier. Any, before its first answer.
    fn after(&self, now: Timestamp, left: Duration) -> i64 {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((heard, micros)) => micros.saturating_add(micros_of(now.since(heard))).saturating_add(micros_of(left)),
            None => i64::MAX,
        }
    }
}

fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn millis(time: Duration) -> i64 {
    // Longer than a century is no lease, and would not fit the server's calendar.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(100 * 366 * 24 * 3_600_000)
}

fn time(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
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
pub(crate) async fn send(shared: &Shared, session: &Session, batch: Batch) -> Sent {
    let mut sent = Sent::default();
    let mut look = |error: &LockError| sent.moved_away |= has_moved_away(error);
    match batch {
        Batch::Acquires(asked) => acquire(shared, session, asked).await.iter().for_each(&mut look),
        Batch::Releases(asked) => release(shared, session, asked).await.iter().for_each(&mut look),
        Batch::One(call) => match *call {
            Call::Acquire(one) => acquire(shared, session, vec![one]).await.iter().for_each(&mut look),
            Call::Release(one) => release(shared, session, vec![one]).await.iter().for_each(&mut look),
            Call::Renew(one) => {
                let answers = renew(shared, session, &one.question).await;
                answers.iter().filter_map(|answer| answer.as_ref().err()).take(1).for_each(&mut look);
                drop(one.answer.send(answers));
            }
            Call::AcquireAll(one) => {
                let answer = beside::acquire_all(shared, session, &one.question, one.since).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::SetBlocked(one) => {
                let (key, blocked) = &one.question;
                drop(one.answer.send(beside::set_blocked(shared, session, key, blocked.as_ref()).await));
            }
            Call::Blocked(one) => drop(one.answer.send(beside::blocked(shared, session, &one.question).await)),
            Call::Holder(one) => drop(one.answer.send(holder(shared, session, &one.question).await)),
            Call::LastRun(one) => drop(one.answer.send(beside::last_run(shared, session, &one.question).await)),
            Call::Done(one) => drop(one.answer.send(marks::done(shared, session, &one.question).await)),
            Call::MarkDone(one) => {
                let answer = marks::mark(shared, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::ForgetDone(one) => {
                let answer = marks::forget(shared, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::Scan(one) => drop(one.answer.send(inspect::scan(shared, session, &one.question).await)),
            Call::Entry(one) => drop(one.answer.send(inspect::entry(shared, session, &one.question).await)),
            Call::Waiters(one) => drop(one.answer.send(inspect::waiters(shared, session, &one.question).await)),
            Call::Revoke(one) => {
                let answer = inspect::revoke(shared, session, &one.question).await;
                answer.as_ref().err().into_iter().for_each(&mut look);
                drop(one.answer.send(answer));
            }
            Call::Ping(one) => drop(one.answer.send(session.run("SELECT 1").await)),
            Call::Sweep(one) => drop(one.answer.send(beside::sweep(shared, session).await)),
        },
    }
    sent
}

/// The order in which every statement touches rows: two of them never wait for each other in a ring.
fn by_key<T>(asked: &mut [T], key: impl Fn(&T) -> &LockKey) {
    asked.sort_by(|one, other| key(one).as_str().cmp(key(other).as_str()));
}

fn texts<T>(asked: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
    asked.iter().map(text).collect()
}

async fn acquire(
    shared: &Shared,
    session: &Session,
    asked: Vec<Asked<AcquireRequest, Result<Attempt>>>,
) -> Option<LockError> {
    let now = shared.clock.now();
    let left = |one: &Asked<AcquireRequest, _>| one.question.execute_within.checked_sub(now.since(one.since));
    let (mut asked, late): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| left(one).is_some());
    for one in late {
        drop(one.answer.send(Err(too_late())));
    }
    if asked.is_empty() {
        return None;
    }
    by_key(&mut asked, |one| &one.question.claim.key);
    let keys = texts(&asked, |one| one.question.claim.key.as_str().to_owned());
    let owners = texts(&asked, |one| one.question.claim.owner.to_hex());
    let ttls: Vec<i64> = asked.iter().map(|one| millis(one.question.claim.ttl)).collect();
    let floors: Vec<i64> = asked.iter().map(|one| signed(one.question.floor)).collect();
    let abouts = texts(&asked, |one| about::write(&one.question.info));
    let deadlines: Vec<i64> =
        asked.iter().map(|one| shared.server_time.after(now, left(one).unwrap_or_default())).collect();
    let tickets: Vec<_> = asked.iter().map(|one| one.question.ticket.as_ref()).collect();
    let inboxes: Vec<Option<String>> =
        tickets.iter().map(|ticket| ticket.map(|ticket| ticket.inbox.to_string())).collect();
    let stamps: Vec<i64> = tickets.iter().map(|ticket| ticket.map_or(0, |ticket| ticket.stamp.cast_signed())).collect();
    let grants: Vec<i64> = tickets.iter().map(|ticket| ticket.map_or(0, |ticket| millis(ticket.grant_ttl))).collect();
    let text = format!(
        "SELECT * FROM {}.acquire_v1($1, $2::text[]::uuid[], $3, $4, $5, $6, $7, $8, $9, $10)",
        shared.settings.schema
    );
    let answer = session
        .ask(
            &text,
            &[
                (&keys, Type::TEXT_ARRAY),
                (&owners, Type::TEXT_ARRAY),
                (&ttls, Type::INT8_ARRAY),
                (&floors, Type::INT8_ARRAY),
                (&abouts, Type::TEXT_ARRAY),
                (&deadlines, Type::INT8_ARRAY),
                (&inboxes, Type::TEXT_ARRAY),
                (&stamps, Type::INT8_ARRAY),
                (&grants, Type::INT8_ARRAY),
                (&shared.settings.commit, Type::TEXT),
            ],
        )
        .await;
    drop(tickets);
    match answer {
        Ok(rows) if rows.len() == asked.len() => {
            if let Some(last) = rows.last() {
                shared.server_time.set(shared.clock.now(), last.get("now_us"));
            }
            for (one, row) in asked.into_iter().zip(&rows) {
                let attempt = attempt(&one.question, row);
                drop(one.answer.send(attempt));
            }
            None
        }
        Ok(_) => give_all(asked, &LockError::unavailable("PostgreSQL gave fewer answers than there were claims")),
        Err(error) => give_all(asked, &error),
    }
}

fn give_all<Q, A>(asked: Vec<Asked<Q, Result<A>>>, error: &LockError) -> Option<LockError> {
    for one in asked {
        drop(one.answer.send(Err(error.clone())));
    }
    Some(error.clone())
}

fn too_late() -> LockError {
    LockError::not_executed(
        "PostgreSQL came to the claim when its time was over, and did not take the lock; try again, or look for what keeps the database busy",
    )
}

fn beyond(request: &AcquireRequest) -> LockError {
    LockError::misconfigured(format!(
        "the newest token known, {}, lies more than an hour ahead of the clock of PostgreSQL, so no token can exceed it; find out which \
         resource stored it",
        request.floor,
    ))
    .with_key(&request.claim.key)
}

/// Reads what became of one claim.
fn attempt(request: &AcquireRequest, row: &Row) -> Result<Attempt> {
    let outcome: &str = row.get("outcome");
    match outcome {
        "granted" => Ok(Attempt::Granted { token: unsigned(row.get("token")) }),
        "late" => Err(too_late().with_key(&request.claim.key)),
        "floor" => Err(beyond(request)),
        _ => {
            let holder = in_the_way(row, "about");
            Ok(if outcome == "queued" { Attempt::Queued { holder } } else { Attempt::Held { holder } })
        }
    }
}

/// Reads who has a lock that was refused, which may be a transaction that is still open.
fn in_the_way(row: &Row, described: &str) -> Holder {
    let mut holder = read_holder(row, described);
    if row.get("pinned") {
        holder.ttl_left = Some(PINNED);
    }
    holder
}

/// Reads a holder, whose description has a column of this name.
fn read_holder(row: &Row, described: &str) -> Holder {
    let owner: Option<&str> = row.get("owner");
    let owner = owner.and_then(|text| lock_core::OwnerId::from_hex(&text.replace('-', "")));
    let mut holder = Holder::foreign(row.get::<_, Option<i64>>("left_ms").map(time));
    holder.info = row.get::<_, Option<&str>>(described).and_then(about::read);
    holder.token = row.get::<_, Option<i64>>("token").map(unsigned);
    let since: Option<i64> = row.get("since_us");
    holder.since = since
        .and_then(|micros| SystemTime::checked_add(&UNIX_EPOCH, Duration::from_micros(u64::try_from(micros).ok()?)));
    match owner {
        Some(_) => {
            holder.owner = owner;
            holder
        }
        None => holder.kept(),
    }
}

async fn renew(shared: &Shared, session: &Session, claims: &[Claim]) -> Vec<Result<Renewal>> {
    // The order of the claims, by key.
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|one, other| claims[*one].key.as_str().cmp(claims[*other].key.as_str()));
    let keys = texts(&order, |index| claims[*index].key.as_str().to_owned());
    let owners = texts(&order, |index| claims[*index].owner.to_hex());
    let ttls: Vec<i64> = order.iter().map(|index| millis(claims[*index].ttl)).collect();
    let text = format!("SELECT renewed FROM {}.renew_v1($1, $2::text[]::uuid[], $3, $4)", shared.settings.schema);
    let answer = session
        .ask(
            &text,
            &[
                (&keys, Type::TEXT_ARRAY),
                (&owners, Type::TEXT_ARRAY),
                (&ttls, Type::INT8_ARRAY),
                (&shared.settings.commit, Type::TEXT),
            ],
        )
        .await;
    match answer {
        Ok(rows) if rows.len() == claims.len() => {
            let mut answers = vec![Ok(Renewal::Lost); claims.len()];
            for (index, row) in order.into_iter().zip(&rows) {
                answers[index] = Ok(if row.get(0) { Renewal::Renewed } else { Renewal::Lost });
            }
            answers
        }
        Ok(_) => {
            vec![Err(LockError::unavailable("PostgreSQL gave fewer answers than there were leases")); claims.len()]
        }
        Err(error) => vec![Err(error); claims.len()],
    }
}

async fn release(
    shared: &Shared,
    session: &Session,
    mut asked: Vec<Asked<Release, Result<Freed>>>,
) -> Option<LockError> {
    by_key(&mut asked, |one| &one.question.claim.key);
    let keys = texts(&asked, |one| one.question.claim.key.as_str().to_owned());
    let owners = texts(&asked, |one| one.question.claim.owner.to_hex());
    let keeps: Vec<i64> = asked.iter().map(|one| millis(one.question.keep_for)).collect();
    let run = |one: &Asked<Release, Result<Freed>>| one.question.run;
    let every: Vec<Option<i64>> = asked.iter().map(|one| run(one).map(|run| millis(run.every))).collect();
    let remembered: Vec<Option<i64>> = asked.iter().map(|one| run(one).map(|run| millis(run.kept_for()))).collect();
    let succeeded: Vec<Option<bool>> = asked.iter().map(|one| run(one).map(|run| run.succeeded)).collect();
    let text =
        format!("SELECT freed FROM {}.release_v1($1, $2::text[]::uuid[], $3, $4, $5, $6, $7)", shared.settings.schema);
    let answer = session
        .ask(
            &text,
            &[
                (&keys, Type::TEXT_ARRAY),
                (&owners, Type::TEXT_ARRAY),
                (&keeps, Type::INT8_ARRAY),
                (&every, Type::INT8_ARRAY),
                (&remembered, Type::INT8_ARRAY),
                (&succeeded, Type::BOOL_ARRAY),
                (&shared.settings.commit, Type::TEXT),
            ],
        )
        .await;
    match answer {
        Ok(rows) if rows.len() == asked.len() => {
            for (one, row) in asked.into_iter().zip(&rows) {
                drop(one.answer.send(Ok(if row.get(0) { Freed::Released } else { Freed::NotHeld })));
            }
            None
        }
        Ok(_) => give_all(asked, &LockError::unavailable("PostgreSQL gave fewer answers than there were claims")),
        Err(error) => give_all(asked, &error),
    }
}

async fn holder(shared: &Shared, session: &Session, key: &LockKey) -> Result<Option<Holder>> {
    let text = format!("SELECT * FROM {}.holder_v1($1)", shared.settings.schema);
    let rows = session.ask(&text, &[(&key.as_str(), Type::TEXT)]).await?;
    Ok(rows.first().map(|row| read_holder(row, "about")))
}
