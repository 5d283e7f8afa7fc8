//! One connection to the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::error::of_command;
use crate::session::tls;
use crate::url::Settings;

/// How long an answer may take before the connection counts as dead. Every call is shorter by far, and its caller gave up before.
const SILENCE: Duration = Duration::from_secs(10);

/// How often a session is looked at for a pooler before it.
const LOOKS: usize = 16;

/// A connection, which ends when this is dropped.
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    schema: Arc<str>,
    /// Whether a commit was answered without the standby that it waits for.
    gave_up: Arc<AtomicBool>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Connects, whatever the server is.
    pub(crate) async fn connect(
        settings: &Settings,
        config: &Config,
        heard: impl Fn(AsyncMessage) + Send + 'static,
    ) -> Result<Self> {
        let gave_up = Arc::new(AtomicBool::new(false));
        let saw = Arc::clone(&gave_up);
        let hear = move |message: AsyncMessage| {
            if stopped_waiting(&message) {
                saw.store(true, Ordering::Release);
            }
            heard(message);
        };
        let (client, driver) = tls::connect(config, settings, hear).await?;
        Ok(Self { client, driver, schema: settings.schema.as_str().into(), gave_up })
    }

    /// Returns whether there is a pooler by transaction in between, where each transaction may run in another session: what is listened
    /// for would be heard by whoever gets the session next, and what is set would stay with it. `config` is what leads here.
    ///
    /// One look proves a pooler, but none proves that there is no pooler: what else runs at that moment may take the sessions in between.
    pub(crate) async fn is_pooled(&self, settings: &Settings, config: &Config) -> Result<bool> {
        let ours = self.pid().await?;
        // A second one that is inside a transaction takes the session of the first, if they share any.
        let other = Self::connect(settings, config, |_| {}).await?;
        for _ in 0..LOOKS {
            other.run("BEGIN").await?;
            let inside = other.pid().await?;
            let after = self.pid().await?;
            other.run("ROLLBACK").await?;
            if ours != after || inside == ours {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn pid(&self) -> Result<i32> {
        let rows = self.ask("SELECT pg_backend_pid()", &[]).await?;
        rows.first().map(|row| row.get(0)).ok_or_else(|| LockError::unavailable("PostgreSQL said nothing of itself"))
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
            // It comes before the answer.
            Ok(_) if self.gave_up.load(Ordering::Acquire) => {
                self.driver.abort();
                Err(LockError::unavailable(
                    "somebody had PostgreSQL stop waiting for its standby; whether the command survives a failover is not known",
                ))
            }
            Ok(answer) => answer.map_err(|error| of_command(error, &self.schema)),
            Err(_) => {
                self.driver.abort();
                Err(LockError::unavailable(
                    "PostgreSQL has not answered for 10 s; whether the command was executed is not known",
                ))
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }
}

/// Whether the server says that a commit is on its own disk only, although it should have waited: the statement succeeds all the same.
fn stopped_waiting(message: &AsyncMessage) -> bool {
    // The sentence depends on the language of the server.
    matches!(message, AsyncMessage::Notice(notice) if notice.routine() == Some("SyncRepWaitForLSN"))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
