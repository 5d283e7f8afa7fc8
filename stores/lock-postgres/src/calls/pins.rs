//! Which transactions have pinned a lock, and what ends them, in words.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Holder, LockKey};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::calls::context::Context;
use crate::calls::values::{read_holder, time};
use crate::session::Session;

/// How soon a waiter asks again for a lock that an open transaction keeps: nobody tells it of the end of that.
const AGAIN: Duration = Duration::from_millis(50);

/// A lock that transactions keep.
pub(super) struct Pin {
    /// How long the oldest has been open.
    pub(super) age: Option<Duration>,
    /// The first three, as an alert names them.
    pub(super) sessions: String,
    /// Which transactions, and for how long they have been open.
    pub(super) who: String,
    /// What ends them.
    pub(super) ends: String,
}

impl Pin {
    /// Says it in one sentence.
    pub(super) fn sentence(&self) -> Arc<str> {
        format!("{} ({})", self.who, self.ends).into()
    }
}

/// Reads which transactions keep a lock, if any do, from the row of an entry. `prepared` are those without a session.
pub(super) fn read(row: &Row, prepared: &[String]) -> Option<Pin> {
    let sessions: Vec<Option<i32>> = row.get::<_, Option<_>>("pids")?;
    let age = row.get::<_, Option<i64>>("pinned_ms").map(time);
    Some(pin(&sessions, age, prepared))
}

fn pin(sessions: &[Option<i32>], age: Option<Duration>, prepared: &[String]) -> Pin {
    let who = sessions.iter().map(|pid| match pid {
        Some(pid) => format!("the transaction of session {pid}"),
        None => "a prepared transaction".to_owned(),
    });
    let who = who.collect::<Vec<_>>().join(", ");
    let name =
        |pid: &Option<i32>| pid.map_or_else(|| "prepared transaction".to_owned(), |pid| format!("session {pid}"));
    let names = sessions.iter().take(3).map(name).collect::<Vec<_>>().join(", ");
    let open = age.map_or_else(String::new, |age| format!(", open for {:.1}s", age.as_secs_f64()));
    let ends = sessions.iter().map(|pid| match (pid, prepared) {
        (Some(pid), _) => format!("COMMIT or ROLLBACK there, or SELECT pg_terminate_backend({pid})"),
        (None, []) => "COMMIT PREPARED or ROLLBACK PREPARED, see pg_prepared_xacts".to_owned(),
        (None, [one]) => format!("COMMIT PREPARED or ROLLBACK PREPARED '{}'", one.replace('\'', "''")),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
            format!("COMMIT PREPARED or ROLLBACK PREPARED one of {}", names.join(", "))
        }
    });
    Pin { age, sessions: names, who: format!("{who}{open}"), ends: ends.collect::<Vec<_>>().join("; ") }
}

/// Names the prepared transactions that have pinned any lock, if one of these rows tells of one.
pub(super) async fn prepared(session: &Session, rows: &[Row]) -> Vec<String> {
    let has_one = |row: &Row| row.get::<_, Option<Vec<Option<i32>>>>("pids").is_some_and(|pids| pids.contains(&None));
    if !rows.iter().any(has_one) {
        return Vec::new();
    }
    // Each has a lock on its own number, by which its other locks are found.
    let look = "SELECT DISTINCT p.gid FROM pg_catalog.pg_prepared_xacts p \
                JOIN pg_catalog.pg_locks x ON x.transactionid OPERATOR(pg_catalog.=) p.transaction AND x.pid IS NULL \
                JOIN pg_catalog.pg_locks l ON l.virtualtransaction OPERATOR(pg_catalog.=) x.virtualtransaction AND l.pid IS NULL \
                WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.mode OPERATOR(pg_catalog.=) 'ShareLock' LIMIT 10";
    let found = session.ask(look, &[]).await.unwrap_or_default();
    found.iter().map(|row| row.get(0)).collect()
}

/// Reads which transactions keep the row of a lock locked, or the table of all locks. If that cannot be read, nothing is told.
pub(super) async fn locked(context: &Context, session: &Session, key: &LockKey) -> Option<Pin> {
    let look = format!("SELECT pid, gid, whole_table, age_ms FROM {}.kept_v1($1)", context.settings.schema);
    let rows = session.ask(&look, &[(&key.as_str(), Type::TEXT)]).await.ok()?;
    let whole_table = rows.first()?.get(2);
    let sessions: Vec<Option<i32>> = rows.iter().map(|row| row.get(0)).collect();
    let prepared: Vec<String> = rows.iter().filter_map(|row| row.get(1)).collect();
    let age = rows.iter().filter_map(|row| row.get::<_, Option<i64>>(3)).max().map(time);
    let mut pin = pin(&sessions, age, &prepared);
    pin.who +=
        if whole_table { ", which locks the whole table or waits to do so" } else { ", which has locked the row" };
    Some(pin)
}

/// Reads who has a lock that was refused, which may be a transaction that is still open.
pub(super) async fn in_the_way(
    context: &Context,
    session: &Session,
    key: &LockKey,
    row: &Row,
    described: &str,
) -> Holder {
    let mut holder = read_holder(row, described);
    if row.get("pinned") {
        holder.ttl_left = Some(AGAIN);
        holder.kept_by = Some(keeping(context, session, key).await);
    }
    holder
}

/// Says what keeps a lock. If that cannot be read, the refusal is told nevertheless.
async fn keeping(context: &Context, session: &Session, key: &LockKey) -> Arc<str> {
    let now = context.clock.now();
    if let Some(known) = context.pins.get(key, now) {
        return known;
    }
    let look = format!("SELECT pids, pinned_ms FROM {}.entries_v1($1)", context.settings.schema);
    let rows = session.ask(&look, &[(&vec![key.as_str()], Type::TEXT_ARRAY)]).await.unwrap_or_default();
    let prepared = prepared(session, &rows).await;
    let pin = rows.first().and_then(|row| read(row, &prepared));
    let text = pin.map_or_else(|| "a transaction that was open a moment ago".into(), |pin| pin.sentence());
    context.pins.set(key.clone(), now, Arc::clone(&text));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pin;

    #[test]
    fn every_transaction_is_named_with_what_ends_it() {
        let two = pin(&[Some(7), None], Some(Duration::from_millis(93_210)), &["it's".to_owned()]);
        assert_eq!(
            &*two.sentence(),
            "the transaction of session 7, a prepared transaction, open for 93.2s (COMMIT or ROLLBACK there, or SELECT \
             pg_terminate_backend(7); COMMIT PREPARED or ROLLBACK PREPARED 'it''s')"
        );
        assert!(pin(&[None], None, &[]).ends.contains("pg_prepared_xacts"));
    }
}
