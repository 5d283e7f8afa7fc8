//! One connection to the database.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lock_core::{LockError, Result};
use lock_store::thread::{sleep, within};
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, Statement};

use crate::error::{has_code, is_not_prepared, of_address, of_command};
use crate::hosts::{addresses, at, count, race};
use crate::session::tls::{self, Driver};
use crate::url::{Settings, node};

/// How long the answer of a call may take. The server ends a statement sooner, so that a session is given up only if nothing answers.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// After how much silence the other hosts of the URL are asked whether one of them has become the primary.
const SILENCE: Duration = Duration::from_millis(1200);

/// How long this host may take to let in a new session, before another one that takes writes counts as the primary.
const ALIVE: Duration = Duration::from_millis(500);

/// How long a request to cancel may take.
const CANCEL: Duration = Duration::from_secs(2);

/// A value of a statement, and its type.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// Statements by their text. `None` for a statement that the server executes and does not prepare.
type Statements = Mutex<HashMap<String, Option<Statement>>>;

/// Takes what the server says by itself.
type Heard = Arc<dyn Fn(AsyncMessage) + Send + Sync>;

/// A connection, which ends when this is dropped.
pub(crate) struct Session {
    client: Client,
    /// The driver of the connection, and its place among those of its host. `None` once the session is given up.
    open: Mutex<Option<(Driver, OwnedSemaphorePermit)>>,
    settings: Settings,
    /// The hosts, and at which of them it is.
    config: Config,
    host: usize,
    /// The number of the server's process, as the other end of the connection told it.
    process: i32,
    /// How long an answer may take, ms.
    within: AtomicU64,
    /// How many connections of the store had been given up when it last answered.
    pub(crate) answered: AtomicU64,
    /// Whether a commit was answered without the standby that it waits for.
    gave_up: Arc<AtomicBool>,
    /// The statements that this session has prepared. Not set if they may not be: a pooler may run each transaction in another session of
    /// the server, which does not know them, or knows another client's statement by the same name.
    statements: OnceLock<Statements>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Connects to one of the hosts, whatever the server is. Each host is given up after its `connect_timeout`, which covers the
    /// look-up of its name, TCP, TLS and the authentication. No host waits until another is given up.
    pub(crate) async fn connect(
        settings: &Settings,
        config: &Config,
        heard: impl Fn(AsyncMessage) + Send + Sync + 'static,
    ) -> Result<Self> {
        let (heard, hosts): (Heard, _) = (Arc::new(heard), count(config));
        let first = *settings.hosts.last().borrow();
        let order = (0..hosts).map(|step| (first + step) % hosts);
        let attempt = |host| Self::at(settings.clone(), config.clone(), host, Arc::clone(&heard));
        let session = race(order.map(attempt).collect()).await?;
        if session.may_move() {
            settings.hosts.set_last(session.host);
        }
        Ok(session)
    }

    async fn at(settings: Settings, config: Config, host: usize, heard: Heard) -> Result<Self> {
        let place = settings.hosts.enter(host)?;
        let one = at(&config, host);
        let (name, bound) = (node(&one), settings.hosts.bound(&one));
        let gave_up = Arc::new(AtomicBool::new(false));
        let opening = async {
            let found = addresses(&one).await.map_err(|error| of_address(error, &name))?;
            let attempt = |address: Config| {
                let (settings, name) = (settings.clone(), Arc::clone(&name));
                let (saw, heard) = (Arc::clone(&gave_up), Arc::clone(&heard));
                let hear = move |message: AsyncMessage| {
                    if stopped_waiting(&message) {
                        saw.store(true, Ordering::Release);
                    }
                    heard(message);
                };
                async move { tls::connect(&address, &settings, &name, hear).await }
            };
            race(found.into_iter().map(attempt).collect()).await
        };
        let opened = within(bound, opening).await;
        settings.hosts.set_late(opened.is_none());
        let (client, driver) = opened.unwrap_or_else(|| {
            Err(LockError::not_executed(format!(
                "PostgreSQL at {name} did not answer within {bound:?} of connecting; check the network, and whether the server is stopped"
            )))
        })?;
        let process = tls::process_of(&client).await;
        let (open, within) = (Mutex::new(Some((driver, place))), AtomicU64::new(0));
        let (answered, statements) = (AtomicU64::new(0), OnceLock::new());
        let session = Self { client, open, settings, config, host, process, within, answered, gave_up, statements };
        session.answer_within(bound);
        Ok(session)
    }

    /// Sets how long an answer may take from now on. At first it is as long as connecting may take.
    pub(crate) fn answer_within(&self, time: Duration) {
        self.within.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns whether a pooler between this process and the server answers for the server. Then each transaction may run in another
    /// session of the server. Its next user would receive the messages of `LISTEN`, and would keep the settings.
    ///
    /// A pooler tells each client a number of its own instead of that of the server's process, so one look is enough, and it takes
    /// one session for one statement.
    pub(crate) async fn is_pooled(&self) -> Result<bool> {
        let rows = self.ask("SELECT pg_catalog.pg_backend_pid()", &[]).await?;
        let row = rows.first().ok_or_else(|| LockError::unavailable("PostgreSQL said nothing of itself"))?;
        Ok(row.get::<_, i32>(0) != self.process)
    }

    /// Lets [`call`](Self::call) prepare statements. The server itself must be at the other end of the connection.
    pub(crate) fn may_prepare(&self) {
        let _ = self.statements.set(Mutex::default());
    }

    /// Sends one statement with the types of its values, which needs no preparation and works behind poolers.
    pub(crate) async fn ask(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        self.send(|| self.client.query_typed(text, values)).await
    }

    /// Sends a statement that is sent very often. The server parses and plans it once in each session, if it may be prepared there.
    pub(crate) async fn call(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        self.send(|| self.prepared(text, values)).await
    }

    async fn send<F: Future<Output = Result<Vec<Row>, Error>>>(&self, command: impl Fn() -> F) -> Result<Vec<Row>> {
        match self.in_time(command()).await {
            // The commit failed because its message found the queue of messages full. Now the functions find it full, and send none.
            Err(error) if has_code(&error, "54000") => self.in_time(command()).await,
            answer => answer,
        }
    }

    /// Executes a statement that was prepared before. Otherwise the statement is executed as it is, and the request to prepare it leaves in
    /// the same message: no call waits for a round trip of its own, and none fails because its statement cannot be prepared.
    async fn prepared(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<Row>, Error> {
        let Some(statements) = self.statements.get() else { return self.client.query_typed(text, values).await };
        let statements = || statements.lock().unwrap_or_else(PoisonError::into_inner);
        let known = statements().get(text).cloned();
        match known {
            None => {}
            Some(None) => return self.client.query_typed(text, values).await,
            Some(Some(statement)) => {
                let plain: Vec<&(dyn ToSql + Sync)> = values.iter().map(|(value, _)| *value).collect();
                match self.client.query(&statement, &plain).await {
                    // The server has executed nothing: it is asked once more, and prepares the statement anew.
                    Err(error) if is_not_prepared(&error) => {}
                    answer => return answer,
                }
            }
        }
        let types: Vec<Type> = values.iter().map(|(_, kind)| kind.clone()).collect();
        let (query, prepare) = (self.client.query_typed(text, values), self.client.prepare_typed(text, &types));
        let (answer, statement) = tokio::join!(query, prepare);
        match (&answer, statement.ok()) {
            (Err(_), None) => drop(statements().remove(text)),
            (_, statement) => drop(statements().insert(text.to_owned(), statement)),
        }
        answer
    }

    /// Sends a question whose names mean what they mean to PostgreSQL, also behind a pooler, where the search path may be of other users.
    pub(crate) async fn look(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        self.run("BEGIN READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp").await?;
        let answer = self.ask(text, values).await;
        self.run("ROLLBACK").await?;
        answer
    }

    /// Sends statements without values.
    pub(crate) async fn run(&self, text: &str) -> Result<()> {
        self.in_time(self.client.batch_execute(text)).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T> {
        if self.is_closed() {
            return Err(LockError::not_executed("the session of PostgreSQL has ended; the next attempt connects anew"));
        }
        let bound = Duration::from_millis(self.within.load(Ordering::Relaxed));
        let said = tokio::select! {
            biased;
            answer = answer => match answer {
                // It comes before the answer.
                Ok(_) if self.gave_up.load(Ordering::Acquire) => {
                    drop(self.close());
                    return Err(LockError::unavailable(
                        "somebody had PostgreSQL stop waiting for its standby; whether the command survives a failover is not known",
                    ));
                }
                answer => return answer.map_err(|error| of_command(error, &self.settings.schema)),
            },
            () = self.moved() => "another host of the URL has become the primary, and this one does not answer".to_owned(),
            () = sleep(bound) => format!("PostgreSQL has not answered for {bound:?}"),
        };
        self.give_up();
        Err(LockError::unavailable(format!("{said}; whether the command was executed is not known")))
    }

    /// Returns once this host has been silent for a while, answers no new session either, and another host takes writes.
    async fn moved(&self) {
        loop {
            if !self.may_move() {
                std::future::pending::<()>().await;
            }
            sleep(SILENCE).await;
            let answers = async |host: usize| {
                let one = at(&self.config, host);
                within(SILENCE, tls::connect(&one, &self.settings, &self.settings.node, |_| {}))
                    .await
                    .is_some_and(|it| it.is_ok())
            };
            for other in (0..count(&self.config)).filter(|other| *other != self.host) {
                if answers(other).await && within(ALIVE, answers(self.host)).await != Some(true) {
                    return self.settings.hosts.set_last(other);
                }
            }
        }
    }

    /// Returns whether another host of the URL may become the primary.
    fn may_move(&self) -> bool {
        count(&self.config) > 1 && self.config.get_target_session_attrs() != TargetSessionAttrs::Any
    }

    /// Ends the session without an answer: has the server cancel the statement, and keeps the place of the session for as long as the
    /// server is at it.
    fn give_up(&self) {
        let Some((mut driver, place)) = self.close() else { return };
        let (token, settings) = (self.client.cancel_token(), self.settings.clone());
        #[expect(clippy::disallowed_methods, reason = "runs on the store's own runtime, or the keeper's")]
        tokio::spawn(async move {
            let counts = settings.hosts.give_up();
            within(CANCEL, tls::cancel(&token, &settings)).await;
            within(counts, driver.ended()).await;
            settings.hosts.ended();
            drop((driver, place));
        });
    }

    /// Ends the session. Returns what drove it.
    pub(crate) fn close(&self) -> Option<(Driver, OwnedSemaphorePermit)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_closed(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.client.is_closed() || open.as_ref().is_none_or(|(driver, _)| driver.is_finished())
    }

    /// Returns whether this process has ended it: no answer came, or the server takes no writes.
    pub(crate) fn was_given_up(&self) -> bool {
        self.is_closed() && !self.client.is_closed()
    }

    /// Returns whether it has ended, or is to be left for another host.
    pub(crate) fn is_of_no_use(&self) -> bool {
        self.is_closed() || self.is_left()
    }

    /// Returns whether a later session was opened at another host of the URL.
    pub(crate) fn is_left(&self) -> bool {
        self.may_move() && *self.settings.hosts.last().borrow() != self.host
    }
}

/// Whether the server says that a commit is on its own disk only, although it should have waited: the statement succeeds all the same.
fn stopped_waiting(message: &AsyncMessage) -> bool {
    // The sentence depends on the language of the server.
    matches!(message, AsyncMessage::Notice(notice) if notice.routine() == Some("SyncRepWaitForLSN"))
}
