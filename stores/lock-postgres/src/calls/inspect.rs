//! Calls of those who look after a fleet: who holds which lock, who waits, and taking a lock away.

use std::time::{Duration, UNIX_EPOCH};

use lock_core::{LockError, LockKey, Mode, OwnerId, Result};
use lock_store::{EntryState, Freed, LockEntry, Revocation, RevokeFrom, ScanPage, ScanPosition, Waiter};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::calls::about;
use crate::calls::beside::job;
use crate::calls::call::Step;
use crate::calls::context::Context;
use crate::calls::marks;
use crate::calls::pins;
use crate::calls::values::{read_holder, time};
use crate::error::is_of_a_value;
use crate::session::Session;

/// Reads the next locks and jobs.
pub(super) async fn scan(context: &Context, session: &Session, (prefix, limit, last): &Step) -> Result<ScanPage> {
    let (schema, limit) = (&context.settings.schema, i32::try_from((*limit).max(1)).unwrap_or(i32::MAX));
    // As bytes: if no client can read one name, which an encoding other than UTF8 permits, the server would refuse the whole answer.
    let text = format!(
        "SELECT pg_catalog.convert_to(k, pg_catalog.getdatabaseencoding()) \
         FROM {schema}.scan_v1($1, pg_catalog.convert_from($2, pg_catalog.getdatabaseencoding()), $3) s(k)"
    );
    let found = session.ask(&text, &[(prefix, Type::TEXT), (last, Type::BYTEA), (&limit, Type::INT4)]).await?;
    let keys: Vec<Vec<u8>> = found.iter().map(|row| row.get(0)).collect();
    let mut page = ScanPage::new(&*context.settings.node);
    page.visited = keys.len() as u64;
    if page.visited >= u64::from(limit.cast_unsigned()) {
        page.next = keys.last().cloned().map(ScanPosition::new);
    }
    if keys.is_empty() {
        return Ok(page);
    }
    let rows = readable(context, session, "entries_v1(", &keys).await?;
    let prepared = pins::prepared(session, &rows).await;
    for row in rows {
        // Another program may call the functions with any name.
        let Ok(key) = LockKey::new(row.get::<_, &str>("key")) else {
            tracing::warn!(node = %context.settings.node, "a lock in PostgreSQL has a name that is no key of a lock, and is not shown");
            continue;
        };
        match job(&row, "job_about", &key) {
            Ok(Some(record)) => page.jobs.push((key.clone(), record)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the record of a job in PostgreSQL is not shown"),
        }
        page.entries.extend(entry_of(&row, &key, &prepared));
    }
    for row in readable(context, session, "done_v1(v => NULL, keys => ", &keys).await? {
        let Ok(key) = LockKey::new(row.get::<_, &str>("key")) else { continue };
        match marks::mark_of(&row, &key) {
            Ok(mark) => page.done.push((key, mark)),
            Err(error) => tracing::warn!(%error, "a mark in PostgreSQL is not shown"),
        }
    }
    Ok(page)
}

/// Reads what a function returns for keys. A row that no client can read is left out, and the other rows are shown.
async fn readable(context: &Context, session: &Session, function: &str, keys: &[Vec<u8>]) -> Result<Vec<Row>> {
    let text = format!(
        "SELECT * FROM {}.{function}ARRAY(SELECT pg_catalog.convert_from(k, pg_catalog.getdatabaseencoding()) FROM pg_catalog.unnest($1) k))",
        context.settings.schema
    );
    let ask = async |keys: &[Vec<u8>]| session.ask(&text, &[(&keys, Type::BYTEA_ARRAY)]).await;
    let mut rows = match ask(keys).await {
        Err(error) if is_of_a_value(&error) => Vec::new(),
        known => return known,
    };
    for key in keys {
        match ask(std::slice::from_ref(key)).await {
            Ok(some) => rows.extend(some),
            Err(error) if is_of_a_value(&error) => {
                tracing::warn!(node = %context.settings.node, key = %key.escape_ascii(), %error, "a lock in PostgreSQL is not shown");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

/// Reads one lock.
pub(super) async fn entry(context: &Context, session: &Session, key: &LockKey) -> Result<Option<LockEntry>> {
    let text = format!("SELECT * FROM {}.entries_v1($1)", context.settings.schema);
    let rows = session.ask(&text, &[(&vec![key.as_str()], Type::TEXT_ARRAY)]).await?;
    let prepared = pins::prepared(session, &rows).await;
    let mut entry = rows.first().and_then(|row| entry_of(row, key, &prepared));
    if let Some(entry) = entry.as_mut().filter(|entry| entry.holder.kept_by.is_none())
        && let Some(locked) = pins::locked(context, session, key).await
    {
        entry.holder.kept_by = Some(locked.sentence());
    }
    Ok(entry)
}

fn entry_of(row: &Row, key: &LockKey, prepared: &[String]) -> Option<LockEntry> {
    if !row.get::<_, bool>("held") {
        return None;
    }
    let now = UNIX_EPOCH + micros(row.get("now_us"));
    let mut entry = LockEntry::new(key.clone(), read_holder(row, "about"), now);
    if entry.state == EntryState::Held {
        entry.ttl = row.get::<_, Option<i64>>("ttl_ms").map(time);
    }
    entry.waiters = u64::try_from(row.get::<_, i64>("waiters")).ok();
    if let Some(pin) = pins::read(row, prepared) {
        entry
            .details
            .push(("pinned by", format!("{}; nobody else is granted the lock before its end: {}", pin.who, pin.ends)));
        (entry.pinned_for, entry.pinned_by) = (pin.age, Some(pin.sessions.clone()));
        entry.holder.kept_by = Some(pin.sentence());
    }
    Some(entry)
}

/// Lists who waits for a lock.
pub(super) async fn waiters(context: &Context, session: &Session, key: &LockKey) -> Result<Vec<Waiter>> {
    let ask = async |about: &str| {
        let text = format!(
            "SELECT owner, {about} AS about, waited_us, confirmed_us FROM {}.waiters_v1($1)",
            context.settings.schema
        );
        session.ask(&text, &[(&key.as_str(), Type::TEXT)]).await
    };
    let rows = match ask("about").await {
        // No client can read what one of them says of itself. All are shown, without that.
        Err(error) if is_of_a_value(&error) => ask("''::pg_catalog.text").await?,
        known => known?,
    };
    let waiter = |(at, row): (usize, &Row)| {
        let owner = OwnerId::from_hex(&row.get::<_, &str>("owner").replace('-', ""));
        let owner = owner.ok_or_else(|| {
            LockError::misconfigured("somebody waits whose identity was not written by a lock store").with_key(key)
        })?;
        let mut waiter = Waiter::new(at + 1, owner, micros(row.get("waited_us")));
        (waiter.info, waiter.mode) = (about::read(row.get("about")), Some(Mode::Exclusive));
        waiter.confirmed = Some(micros(row.get("confirmed_us")));
        Ok(waiter)
    };
    rows.iter().enumerate().map(waiter).collect()
}

/// Takes a lock away from the owner that is named.
pub(super) async fn revoke(
    context: &Context,
    session: &Session,
    (key, revocation): &(LockKey, Revocation),
) -> Result<Freed> {
    // No client of another library can write into these tables.
    let RevokeFrom::Owner(owner) = &revocation.from else { return Ok(Freed::NotHeld) };
    let plain = |text: &str| text.replace('\0', " ");
    let text =
        format!("SELECT {}.revoke_v1($1, $2::pg_catalog.text::pg_catalog.uuid, $3, $4, $5)", context.settings.schema);
    let rows = session
        .ask(
            &text,
            &[
                (&key.as_str(), Type::TEXT),
                (&owner.to_hex(), Type::TEXT),
                (&plain(&revocation.actor), Type::TEXT),
                (&plain(&revocation.reason), Type::TEXT),
                (&context.settings.commit, Type::TEXT),
            ],
        )
        .await?;
    match rows.first() {
        Some(row) => Ok(if row.get(0) { Freed::Released } else { Freed::NotHeld }),
        None => Err(LockError::unavailable("PostgreSQL gave no answer to a revocation").with_key(key)),
    }
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}
