//! Calls that do not belong to one claim: several locks at once, notes, jobs, the sweep.

use lock_core::{LockError, LockKey, OwnerId, Result, Timestamp};
use lock_store::{AcquireRequest, AttemptAll, Blocked, JobRecord, JobRun};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::calls::about;
use crate::calls::context::Context;
use crate::calls::pins::in_the_way;
use crate::calls::values::{beyond, exactly, millis, order_by_key, texts, time, too_late};
use crate::pin::{signed, unsigned};
use crate::session::Session;

/// Takes several locks, or none.
pub(super) async fn acquire_all(
    context: &Context,
    session: &Session,
    requests: &[AcquireRequest],
    since: Timestamp,
) -> Result<AttemptAll> {
    let Some(first) = requests.first() else { return Ok(AttemptAll::Granted { tokens: Vec::new() }) };
    let now = context.clock.now();
    let Some(left) = first.execute_within.checked_sub(now.since(since)) else { return Err(too_late()) };
    let order = order_by_key(requests.len(), |index| &requests[index].claim.key);
    let keys = texts(&order, |index| requests[*index].claim.key.as_str().to_owned());
    let owners = texts(&order, |index| requests[*index].claim.owner.to_hex());
    let ttls: Vec<i64> = order.iter().map(|index| millis(requests[*index].claim.ttl)).collect();
    let text = format!(
        "SELECT * FROM {}.acquire_all_v1($1, $2::pg_catalog.text[]::pg_catalog.uuid[], $3, $4, $5, $6, $7)",
        context.settings.schema
    );
    let answer = session
        .call(
            &text,
            &[
                (&keys, Type::TEXT_ARRAY),
                (&owners, Type::TEXT_ARRAY),
                (&ttls, Type::INT8_ARRAY),
                (&signed(first.floor), Type::INT8),
                (&about::write(&first.info), Type::TEXT),
                (&context.server_time.after(now, left), Type::INT8),
                (&context.settings.commit, Type::TEXT),
            ],
        )
        .await;
    let rows = exactly(requests.len(), "claims", answer)?;
    if let Some(last) = rows.last() {
        context.server_time.set(context.clock.now(), last.get("now_us"));
    }
    let outcome = |row: &Row| row.get::<_, String>("outcome");
    if rows.iter().any(|row| outcome(row) == "late") {
        return Err(too_late());
    }
    if rows.iter().any(|row| outcome(row) == "floor") {
        return Err(beyond(first));
    }
    // The first in the order of the requests.
    let taken = order.iter().zip(&rows).filter(|(_, row)| outcome(row) == "held").min_by_key(|(index, _)| **index);
    if let Some((index, row)) = taken {
        let key = &requests[*index].claim.key;
        return Ok(AttemptAll::Held { index: *index, holder: in_the_way(context, session, key, row, "holder").await });
    }
    let mut tokens: Vec<_> = order.iter().zip(&rows).map(|(index, row)| (*index, unsigned(row.get("token")))).collect();
    tokens.sort_unstable_by_key(|(index, _)| *index);
    Ok(AttemptAll::Granted { tokens: tokens.into_iter().map(|(_, token)| token).collect() })
}

/// Keeps what a holder waits for, or forgets it.
pub(super) async fn set_blocked(
    context: &Context,
    session: &Session,
    key: &LockKey,
    blocked: Option<&Blocked>,
) -> Result<()> {
    let text = format!(
        "SELECT {}.set_blocked_v1($1, $2::pg_catalog.text::pg_catalog.uuid, $3, $4, $5)",
        context.settings.schema
    );
    let owner = blocked.map(|blocked| blocked.owner.to_hex());
    let token = blocked.map(|blocked| signed(blocked.token));
    let stamp = blocked.map(|blocked| blocked.stamp.cast_signed());
    let other = blocked.map(|blocked| blocked.waits_for.as_str());
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
        (&key.as_str(), Type::TEXT),
        (&owner, Type::TEXT),
        (&token, Type::INT8),
        (&stamp, Type::INT8),
        (&other, Type::TEXT),
    ];
    session.ask(&text, &values).await.map(drop)
}

/// Says what a holder waits for.
pub(super) async fn blocked(context: &Context, session: &Session, key: &LockKey) -> Result<Option<Blocked>> {
    let text = format!("SELECT * FROM {}.blocked_v1($1)", context.settings.schema);
    let rows = session.ask(&text, &[(&key.as_str(), Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let owner = OwnerId::from_hex(&row.get::<_, &str>("owner").replace('-', ""));
    let (Some(owner), Ok(waits_for)) = (owner, LockKey::new(row.get::<_, &str>("waits_for"))) else {
        return Err(LockError::misconfigured(
            "what the database says the holder waits for was not written by a lock store",
        )
        .with_key(key));
    };
    Ok(Some(Blocked::new(owner, unsigned(row.get("token")), row.get::<_, i64>("stamp").cast_unsigned(), waits_for)))
}

/// Says what is remembered of a job.
pub(super) async fn last_run(context: &Context, session: &Session, key: &LockKey) -> Result<Option<JobRecord>> {
    let text = format!("SELECT * FROM {}.last_run_v1($1)", context.settings.schema);
    let rows = session.ask(&text, &[(&key.as_str(), Type::TEXT)]).await?;
    rows.first().map_or(Ok(None), |row| job(row, "about", key))
}

/// Reads what is remembered of a job, whose description has a column of this name.
pub(super) fn job(row: &Row, described: &str, key: &LockKey) -> Result<Option<JobRecord>> {
    let Some(every) = row.get("every_ms") else { return Ok(None) };
    let run = JobRun::new(time(every), row.get("succeeded"));
    let Some(info) = about::read(row.get(described)) else {
        return Err(LockError::misconfigured(
            "what the database remembers of this job was not written by a lock store",
        )
        .with_key(key));
    };
    Ok(Some(JobRecord::new(run, info, time(row.get("started_ms")), time(row.get("good_ms")))))
}

/// Removes what nobody has used for long, if no other process does.
pub(super) async fn sweep(context: &Context, session: &Session) -> Result<()> {
    let schema = &context.settings.schema;
    let rows = session.ask(&format!("SELECT {schema}.sweep_begin_v1()"), &[]).await?;
    let Some(highest) = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) else { return Ok(()) };
    // As bytes: a key that no client can read stops no sweep.
    let text = format!(
        "SELECT pg_catalog.convert_to({schema}.sweep_v2($1, pg_catalog.convert_from($2, pg_catalog.getdatabaseencoding())), \
         pg_catalog.getdatabaseencoding())"
    );
    let mut last = Some(Vec::new());
    while let Some(after) = last {
        let rows = session.ask(&text, &[(&highest, Type::INT8), (&after, Type::BYTEA)]).await?;
        last = rows.first().and_then(|row| row.get::<_, Option<Vec<u8>>>(0));
    }
    Ok(())
}
