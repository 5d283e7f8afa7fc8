//! The calls of single locks: taken and released, those that came together in one statement.

use lock_core::{Holder, LockKey, Result};
use lock_store::{AcquireRequest, Attempt, Freed, Release};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::calls::about;
use crate::calls::call::{Asked, Failed};
use crate::calls::context::Context;
use crate::calls::pins::in_the_way;
use crate::calls::values::{beyond, exactly, millis, read_holder, texts, too_late};
use crate::pin::{signed, unsigned};
use crate::session::Session;

/// Puts what came together into the order in which every statement touches rows.
fn by_key<T>(asked: &mut [T], key: impl Fn(&T) -> &LockKey) {
    asked.sort_by(|one, other| key(one).as_str().cmp(key(other).as_str()));
}

pub(super) async fn acquire(
    context: &Context,
    session: &Session,
    asked: Vec<Asked<AcquireRequest, Result<Attempt>>>,
) -> Option<Failed<AcquireRequest, Attempt>> {
    let now = context.clock.now();
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
        asked.iter().map(|one| context.server_time.after(now, left(one).unwrap_or_default())).collect();
    let tickets: Vec<_> = asked.iter().map(|one| one.question.ticket.as_ref()).collect();
    let inboxes: Vec<Option<String>> =
        tickets.iter().map(|ticket| ticket.map(|ticket| ticket.inbox.to_string())).collect();
    let stamps: Vec<i64> = tickets.iter().map(|ticket| ticket.map_or(0, |ticket| ticket.stamp.cast_signed())).collect();
    let grants: Vec<i64> = tickets.iter().map(|ticket| ticket.map_or(0, |ticket| millis(ticket.grant_ttl))).collect();
    let text = format!(
        "SELECT * FROM {}.acquire_v2($1, $2::pg_catalog.text[]::pg_catalog.uuid[], $3, $4, $5, $6, $7, $8, $9, $10)",
        context.settings.schema
    );
    let answer = session
        .call(
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
                (&context.settings.commit, Type::TEXT),
            ],
        )
        .await;
    drop(tickets);
    match exactly(asked.len(), "claims", answer) {
        Ok(rows) => {
            if let Some(last) = rows.last() {
                context.server_time.set(context.clock.now(), last.get("now_us"));
            }
            let (pinned, others): (Vec<_>, Vec<_>) =
                asked.into_iter().zip(&rows).partition(|(_, row)| row.get::<_, bool>("pinned"));
            answer_each(context, session, others).await;
            wake(session, &rows).await;
            // The transaction that pins the lock is looked up. Other claims and waiters do not wait for that.
            answer_each(context, session, pinned).await;
            None
        }
        Err(error) => Some(Failed { error, asked }),
    }
}

async fn answer_each(context: &Context, session: &Session, asked: Vec<(Asked<AcquireRequest, Result<Attempt>>, &Row)>) {
    for (one, row) in asked {
        let attempt = attempt(context, session, &one.question, row).await;
        drop(one.answer.send(attempt));
    }
}

/// Reads what became of one claim.
async fn attempt(context: &Context, session: &Session, request: &AcquireRequest, row: &Row) -> Result<Attempt> {
    let outcome: &str = row.get("outcome");
    match outcome {
        "granted" => Ok(Attempt::Granted { token: unsigned(row.get("token")), lease: None }),
        "late" => Err(too_late().with_key(&request.claim.key)),
        "floor" => Err(beyond(request)),
        _ => {
            let holder = in_the_way(context, session, &request.claim.key, row, "about").await;
            Ok(if outcome == "queued" { Attempt::Queued { holder } } else { Attempt::Held { holder } })
        }
    }
}

pub(super) async fn release(
    context: &Context,
    session: &Session,
    mut asked: Vec<Asked<Release, Result<Freed>>>,
) -> Option<Failed<Release, Freed>> {
    by_key(&mut asked, |one| &one.question.claim.key);
    let keys = texts(&asked, |one| one.question.claim.key.as_str().to_owned());
    let owners = texts(&asked, |one| one.question.claim.owner.to_hex());
    let keeps: Vec<i64> = asked.iter().map(|one| millis(one.question.keep_for)).collect();
    let run = |one: &Asked<Release, Result<Freed>>| one.question.run;
    let every: Vec<Option<i64>> = asked.iter().map(|one| run(one).map(|run| millis(run.every))).collect();
    let remembered: Vec<Option<i64>> = asked.iter().map(|one| run(one).map(|run| millis(run.kept_for()))).collect();
    let succeeded: Vec<Option<bool>> = asked.iter().map(|one| run(one).map(|run| run.succeeded)).collect();
    let text = format!(
        "SELECT * FROM {}.release_v2($1, $2::pg_catalog.text[]::pg_catalog.uuid[], $3, $4, $5, $6, $7)",
        context.settings.schema
    );
    let answer = session
        .call(
            &text,
            &[
                (&keys, Type::TEXT_ARRAY),
                (&owners, Type::TEXT_ARRAY),
                (&keeps, Type::INT8_ARRAY),
                (&every, Type::INT8_ARRAY),
                (&remembered, Type::INT8_ARRAY),
                (&succeeded, Type::BOOL_ARRAY),
                (&context.settings.commit, Type::TEXT),
            ],
        )
        .await;
    match exactly(asked.len(), "claims", answer) {
        Ok(rows) => {
            for (one, row) in asked.into_iter().zip(&rows) {
                drop(one.answer.send(Ok(if row.get("freed") { Freed::Released } else { Freed::NotHeld })));
            }
            wake(session, &rows).await;
            None
        }
        Err(error) => Some(Failed { error, asked }),
    }
}

/// Tells the waiters to which a call has granted locks. A message that does not leave costs them time: they ask again.
async fn wake(session: &Session, rows: &[Row]) {
    let granted = rows.iter().filter(|row| row.get::<_, Option<&str>>("channel").is_some());
    let (channels, messages): (Vec<&str>, Vec<&str>) =
        granted.map(|row| (row.get::<_, &str>("channel"), row.get::<_, &str>("message"))).unzip();
    if channels.is_empty() {
        return;
    }
    let text = "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify(c, m) \
                FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) w(c, m)";
    let sent = session.call(text, &[(&channels, Type::TEXT_ARRAY), (&messages, Type::TEXT_ARRAY)]).await;
    if let Err(error) = sent {
        tracing::debug!(%error, "a waiter was not told that it has the lock; it finds out when it asks again");
    }
}

pub(super) async fn holder(context: &Context, session: &Session, key: &LockKey) -> Result<Option<Holder>> {
    let text = format!("SELECT * FROM {}.holder_v1($1)", context.settings.schema);
    let rows = session.ask(&text, &[(&key.as_str(), Type::TEXT)]).await?;
    Ok(rows.first().map(|row| read_holder(row, "about")))
}
