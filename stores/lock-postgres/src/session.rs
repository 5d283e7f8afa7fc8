//! One connection to the database, ready for the calls of the store.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::error::of_command;
use crate::url::Settings;
use crate::{schema, tls};

/// How long an answer may take before the connection counts as dead. Every call is shorter by far, and its caller gave up before.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection, which ends when this is dropped.
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    schema: Arc<str>,
    /// What the server's clock showed when this was opened, us.
    opened: i64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Connects, and looks whether the store can be used; `may_make` what is missing. `heard` is told what the server says by itself.
    pub(crate) async fn open(
        settings: &Settings,
        config: &Config,
        may_make: bool,
        heard: impl Fn(AsyncMessage) + Send + 'static,
    ) -> Result<Self> {
        let (client, driver) = tls::connect(config, &settings.node, heard).await?;
        let mut session = Self { client, driver, schema: settings.schema.as_str().into(), opened: 0 };
        let look = "SELECT pg_is_in_recovery(), current_setting('transaction_isolation') = 'read committed', \
                    current_setting('server_version_num')::int, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let rows = session.ask(look, &[]).await?;
        let row = rows.first().ok_or_else(|| LockError::not_executed("PostgreSQL said nothing of itself"))?;
        let (standby, committed, version): (bool, bool, i32) = (row.get(0), row.get(1), row.get(2));
        session.opened = row.get(3);
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
        if !committed {
            // Behind a pooler it would stay with somebody else's connection: there the functions refuse instead.
            session.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
        }
        schema::check(&session, settings, may_make).await?;
        Ok(session)
    }

    /// Sends one statement with the types of its values, which needs no preparation and works behind poolers.
    pub(crate) async fn ask(&self, text: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>> {
        self.in_time(self.client.query_typed(text, values)).await
    }

    /// Sends statements without values.
    pub(crate) async fn run(&self, text: &str) -> Result<()> {
        self.in_time(self.client.batch_execute(text)).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        #[expect(clippy::disallowed_methods, reason = "runs on the store's own runtime, which has a timer")]
        match tokio::time::timeout(SILENCE, answer).await {
            Ok(answer) => answer.map_err(|error| of_command(error, &self.schema)),
            Err(_) => {
                self.driver.abort();
                Err(LockError::unavailable(
                    "PostgreSQL has not answered for 10 s; whether the command was executed is not known",
                ))
            }
        }
    }

    pub(crate) fn server_time(&self) -> i64 {
        self.opened
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Waits until the connection ends.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.driver).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
