//! The contract of a store, over the calls.

use std::sync::OnceLock;
use std::time::Duration;

use lock_core::{Holder, LockBackend, LockError, LockKey, Notice, Result};
use lock_store::{
    AcquireRequest, Attempt, AttemptAll, Blocked, BlockedNotes, Capabilities, Claim, Doctor, DoneMark, DoneMarks,
    Freed, Inbox, Inspector, JobRecord, JobRecords, JobVersion, Release, Renewal,
};

use crate::calls::call::{Asked, Call};
use crate::listen;
use crate::runner::Runner;
use crate::session::{schema, within};
use crate::url::Settings;

/// How long a server may take to answer a ping before it counts as away.
const AWAY: Duration = Duration::from_secs(5);

/// Locks in a PostgreSQL database, 14 or newer.
///
/// [`LockManager::connect`](lock_core::LockManager::connect) makes it of a URL, if the program has `use lock_postgres as _;`. By hand:
///
/// ```
/// use lock_core::LockManager;
/// use lock_postgres::PostgresStore;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let store = PostgresStore::new("postgres://app@db-1/shop")?;
/// let locks = LockManager::builder(store).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresStore {
    settings: Settings,
    runner: OnceLock<Runner>,
}

impl PostgresStore {
    /// Takes a URL: `postgres://[user:password@]host[:5432],host…/database`. Opens nothing.
    ///
    /// | parameter | meaning |
    /// |---|---|
    /// | `schema=lock_core` | where the tables and functions are |
    /// | `migrate=auto`, `never` | whether the schema is made if it is missing |
    /// | `commit=on`, `remote_apply`, `off` | `synchronous_commit` of grants and renewals: on this server's disk, visible on a synchronous standby too, or neither, which loses locks in a crash |
    /// | `listen=host:5432` | the server itself, where the URL names a pooler by transaction: there waiters would poll |
    /// | `sslmode=verify-full`, `require` | TLS, always verified (feature `tls`); default: none |
    /// | `sslmode=verify-ca` | TLS, verified but for the name of the server; needs `ca=FILE` |
    /// | `ca=FILE`, `sslrootcert=FILE` | the authorities (PEM) that servers are trusted by, instead of those of this machine |
    /// | `sslcert=FILE`, `sslkey=FILE` | the certificate of this client and its key (PEM) |
    /// | `channel_binding=require` | the login is bound to the certificate of the server |
    ///
    /// The other parameters of libpq are honoured, or refused by name. Without a password in the URL, `PGPASSWORD` or a password file has
    /// it. Files are read again for each connection.
    ///
    /// If the URL names several hosts, the store uses the one that takes writes. `connect_timeout=` bounds how long each of them may take to let in a session.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) for a URL that cannot be understood.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { settings: Settings::read(url)?, runner: OnceLock::new() })
    }

    /// Returns the statements that make the tables and functions in this schema, or bring those of an older version up to date. The owner of
    /// the schema runs them in one transaction, also while programs of older versions are at work. Connecting does the same, without
    /// `migrate=never`.
    #[must_use]
    pub fn schema(name: &str) -> String {
        schema::sql(name)
    }

    /// Asks over the connections, which the first call opens.
    pub(crate) async fn ask<Q, A>(
        &self,
        question: Q,
        call: impl FnOnce(Asked<Q, A>) -> Call,
        failed: impl FnOnce(LockError) -> A,
    ) -> A {
        if self.runner.get().is_none() {
            match Runner::start(self.settings.clone()) {
                // Another thread may have been first.
                Ok(runner) => drop(self.runner.set(runner)),
                Err(error) => return failed(error),
            }
        }
        match self.runner.get() {
            Some(runner) => runner.ask(question, call, failed).await,
            None => failed(LockError::not_executed("the connections to PostgreSQL were not opened")),
        }
    }

    /// Removes what nobody has used for ten minutes.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.ask((), Call::Sweep, Err).await
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl LockBackend for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::polled().with_queue()
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        // First one connection for everybody who waits for it, and only then another.
        let tell = |up| inbox.notice(&Notice::Connection { node: &self.settings.node, up });
        let mut ping = std::pin::pin!(self.ping());
        // A server that does not answer keeps a ping waiting for as long as it is away.
        let reached = match within(AWAY, &mut ping).await {
            Some(reached) => reached,
            None => {
                tell(false);
                ping.await
            }
        };
        tell(reached.is_ok());
        if let Err(error) = reached {
            return error;
        }
        listen::listen(&self.settings, || self.sweep(), &inbox).await
    }

    async fn ping(&self) -> Result<()> {
        self.ask((), Call::Ping, Err).await
    }

    fn node(&self, _: u16) -> &str {
        &self.settings.node
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if request.claim.mode.is_shared() {
            return Err(LockError::misconfigured(
                "PostgreSQL gives exclusive locks only, and no readers and no permits yet; take an exclusive lock, or share on Redis",
            )
            .with_key(&request.claim.key));
        }
        self.ask(request.clone(), Call::Acquire, Err).await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        if requests.iter().any(|request| request.claim.mode.is_shared()) {
            return Ok(AttemptAll::Apart);
        }
        self.ask(requests.to_vec(), Call::AcquireAll, Err).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let count = one_lane.len();
        self.ask(one_lane.to_vec(), Call::Renew, |error| vec![Err(error); count]).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.ask(release.clone(), Call::Release, Err).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.ask(Release::new(claim.clone()), Call::Release, Err).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.ask(key.clone(), Call::Holder, Err).await
    }

    lock_store::has_parts! {
        blocking: BlockedNotes, jobs: JobRecords, marks: DoneMarks, inspector: Inspector, doctor: Doctor
    }
}

impl BlockedNotes for PostgresStore {
    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        self.ask((key.clone(), blocked.cloned()), Call::SetBlocked, Err).await
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        self.ask(key.clone(), Call::Blocked, Err).await
    }
}

impl JobRecords for PostgresStore {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.ask(key.clone(), Call::LastRun, Err).await
    }
}

impl DoneMarks for PostgresStore {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        self.ask((key.clone(), version.clone()), Call::Done, Err).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        self.ask((claim.clone(), version.clone(), keep), Call::MarkDone, Err).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.ask((key.clone(), version.clone()), Call::ForgetDone, Err).await
    }
}
