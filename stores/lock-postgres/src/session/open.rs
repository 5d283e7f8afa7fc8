//! A session in which the store can be called.

use lock_core::{LockError, Result};
use tokio_postgres::{AsyncMessage, Config};

use crate::session::connection::Session;
use crate::session::migrate;
use crate::url::Settings;

/// A session, and what the server's clock showed when it was opened, us.
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) server_time: i64,
}

/// Connects, and looks whether the store can be used; `may_make` what is missing. `heard` is told what the server says by itself.
pub(crate) async fn open(
    settings: &Settings,
    config: &Config,
    may_make: bool,
    heard: impl Fn(AsyncMessage) + Send + 'static,
) -> Result<Opened> {
    let session = Session::connect(settings, config, heard).await?;
    let look = "SELECT pg_is_in_recovery(), current_setting('transaction_isolation') = 'read committed', \
                current_setting('server_version_num')::int, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let rows = session.ask(look, &[]).await?;
    let row = rows.first().ok_or_else(|| LockError::not_executed("PostgreSQL said nothing of itself"))?;
    let (standby, committed, version): (bool, bool, i32) = (row.get(0), row.get(1), row.get(2));
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
    // Behind a pooler it would stay with somebody else's connection: there the functions refuse instead.
    if !committed && !session.is_pooled(settings, config).await? {
        session.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    }
    migrate::check(&session, settings, may_make).await?;
    Ok(Opened { session, server_time: row.get(3) })
}
