//! A session in which the store can be called.

use lock_core::{LockError, Result};
use tokio_postgres::{AsyncMessage, Config};

use crate::session::connection::{ANSWER, Session};
use crate::session::migrate;
use crate::url::Settings;

/// The settings of a session at the server itself, whatever its user, its database or the server say. A statement waits for a locked row
/// for a second, and ends before its answer would be given up. Behind a pooler the functions set what they need for their transaction.
const SETTINGS: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                        SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning; \
                        SET lock_timeout = '1s'; SET statement_timeout = '8s'; \
                        SET idle_in_transaction_session_timeout = '10s'; SET idle_session_timeout = 0";

/// A session, and what was learnt when it was opened.
pub(crate) struct Opened {
    pub(crate) session: Session,
    /// The time that the server's clock showed, us.
    pub(crate) server_time: i64,
    /// Whether a pooler answers for the server.
    pub(crate) pooled: bool,
}

/// Connects, and looks whether the store can be used; `may_make` what is missing. `heard` is told what the server says by itself.
pub(crate) async fn open(
    settings: &Settings,
    config: &Config,
    may_make: bool,
    heard: impl Fn(AsyncMessage) + Send + Sync + 'static,
) -> Result<Opened> {
    let session = Session::connect(settings, config, heard).await?;
    let pooled = session.is_pooled().await?;
    if !pooled {
        // Behind a pooler it would stay with a connection that others use too: there the functions set what they need.
        session.run(SETTINGS).await?;
        session.may_prepare();
    }
    let look = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_version_num')::int, \
                pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";
    let rows = session.ask(look, &[]).await?;
    let row = rows.first().ok_or_else(|| LockError::not_executed("PostgreSQL said nothing of itself"))?;
    let (standby, version): (bool, i32) = (row.get(0), row.get(1));
    if standby {
        return Err(LockError::not_executed(
            "this PostgreSQL is a standby, which grants no locks; name the primary in the URL, or both hosts, of which the one that \
             takes writes is used",
        ));
    }
    if version < 140_000 {
        return Err(LockError::misconfigured(
            "this PostgreSQL is older than 14, the first that the lock store works on",
        ));
    }
    migrate::check(&session, settings, may_make).await?;
    session.answer_within(ANSWER);
    Ok(Opened { session, server_time: row.get(2), pooled })
}
