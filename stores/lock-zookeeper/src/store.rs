//! The contract of a store, over the calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_core::LockGuard;
use lock_store::types::options::command_timeout;
use lock_store::{
    AcquireRequest, Attempt, Capabilities, Claim, Doctor, DoneMark, DoneMarks, Freed, Holder, Inbox, Inspector,
    JobRecord, JobRecords, JobVersion, LockBackend, LockError, LockKey, MemberList, QuorumMember, Release, Renewal,
    Result, Vote,
};

use crate::calls::{acquire, beside, release, renew, vote};
use crate::runner::Runner;
use crate::shared::Shared;
use crate::url::Settings;

/// How long a call without a time-out of its own may take.
pub(crate) const CALL: Duration = Duration::from_secs(5);

/// Locks in Apache ZooKeeper, 3.6 or newer.
///
/// [`LockManager::connect`](lock_core::LockManager::connect) makes it of a URL. By hand, for example to [pin](Self::pin) locks:
///
/// ```
/// use lock_core::LockManager;
/// use lock_zookeeper::ZooKeeper;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let store = ZooKeeper::new("zookeeper://zk-1,zk-2,zk-3/locks?session=20s")?;
/// let locks = LockManager::builder(store.clone()).connect().await?;
/// # Ok(())
/// # }
/// ```
///
/// Clones are one store with one session.
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    runner: OnceLock<Runner>,
}

impl ZooKeeper {
    /// Takes a URL: `zookeeper://[user:password@]host[:2181],…/path?session=20s`. Opens nothing.
    ///
    /// - The path is the node below which the locks are, by default `/lock-core`. Other clients must not write there.
    /// - `session` is the time after which the servers free the locks of a process that they do not hear of. A holder counts on its
    ///   lock for half of that time after a write, so a ttl of 10 s needs `session=20s`, which is the default. The servers may give
    ///   another time, between their `minSessionTimeout` and `maxSessionTimeout`.
    /// - A user and password (scheme `digest`) own every node. Every process needs the same.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) for a URL that cannot be understood.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { inner: Arc::new(Inner { settings: Settings::read(url)?, runner: OnceLock::new() }) })
    }

    /// Names the node of a held lock, for a check in your own `multi` with ZooKeeper.
    ///
    /// If the lock was lost, the check fails with *no node*, and nothing of the `multi` is done. Hold the guard until it is answered:
    ///
    /// ```no_run
    /// # async fn write(store: lock_zookeeper::ZooKeeper, client: zookeeper_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = lock_core::LockManager::builder(store.clone()).connect().await?;
    /// let guard = locks.lock("account:7").await?;
    /// let mut writer = client.new_multi_writer();
    /// writer.add_check_version(&store.pin(&guard)?, -1)?; // any version
    /// writer.add_set_data("/accounts/7", b"90", None)?;
    /// writer.commit().await?;
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The path counts from the root of the servers, and your client may not have a chroot. It may belong to any session.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](lock_core::LockErrorKind::Lost) if the lock is lost, and
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) if the guard belongs to another store.
    pub fn pin(&self, guard: &LockGuard) -> Result<String> {
        guard.ensure_held()?;
        let runner = self.inner.runner.get();
        let path = runner.and_then(|runner| runner.shared.places.holding(guard.key(), guard.token()));
        path.ok_or_else(|| {
            LockError::misconfigured("this store did not grant the lock of the guard").with_key(guard.key())
        })
    }

    /// Returns the thread of the store, which the first call starts.
    pub(crate) fn runner(&self) -> Result<&Runner> {
        let Inner { settings, runner } = &*self.inner;
        if runner.get().is_none() {
            // Another thread may have been first.
            drop(runner.set(Runner::start(settings.clone())?));
        }
        runner.get().ok_or_else(|| LockError::not_executed("the session with ZooKeeper was not opened"))
    }
}

impl LockBackend for ZooKeeper {
    fn kind(&self) -> &'static str {
        "zookeeper"
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled().with_queue();
        known.sessions = true;
        known
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        match self.runner() {
            Ok(runner) => runner.attend(&inbox).await,
            Err(error) => error,
        }
    }

    async fn ping(&self) -> Result<()> {
        let ask = |shared: Arc<Shared>, until| async move { shared.session(until).await.map(drop) };
        self.runner()?.ask_within(CALL, ask).await
    }

    fn node(&self, _: u16) -> &str {
        &self.inner.settings.hosts
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let claim = &request.claim;
        if claim.mode.is_shared() {
            return Err(LockError::misconfigured(
                "ZooKeeper gives exclusive locks only, and no readers and no permits; take an exclusive lock, or share on Redis",
            )
            .with_key(&claim.key));
        }
        let take = |shared, request, until| async move { acquire::acquire(&shared, &request, until).await };
        self.runner()?.acquire(request.clone(), take).await
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        self.inner.runner.get().is_some_and(|runner| runner.shared.is_contended(key))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let claims = one_lane.to_vec();
        let renewed = match self.runner() {
            Ok(runner) => runner.ask(|shared| async move { renew::renew(&shared, &claims).await }).await,
            Err(error) => Err(error),
        };
        renewed.unwrap_or_else(|error| vec![Err(error); one_lane.len()])
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        let (release, bound) = (release.clone(), command_timeout(release.claim.ttl).max(CALL));
        let ask = |shared: Arc<Shared>, until| async move {
            let _turn = shared.turn(release.claim.owner, until).await?;
            release::release(&shared, &release, until).await.map_err(|error| error.with_key(&release.claim.key))
        };
        self.runner()?.ask_within(bound, ask).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.release(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let key = key.clone();
        let ask = |shared, until| async move { beside::holder(&shared, &key, until).await };
        self.runner()?.ask_within(CALL, ask).await
    }

    lock_store::has_parts! { jobs: JobRecords, marks: DoneMarks, inspector: Inspector, doctor: Doctor, member: QuorumMember }
}

impl QuorumMember for ZooKeeper {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        self.runner()?.acquire(request.clone(), vote::vote).await
    }

    async fn remember(&self, _: Option<&MemberList>, _: Duration) -> Result<Vec<MemberList>> {
        Ok(Vec::new())
    }

    /// Nothing to declare: the servers keep what they have answered.
    async fn vouch(&self) -> Result<()> {
        Ok(())
    }
}

impl JobRecords for ZooKeeper {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let key = key.clone();
        let ask = |shared: Arc<Shared>, until| async move {
            let session = shared.session(until).await?;
            beside::last_run(&shared, &session, &key).await
        };
        self.runner()?.ask_within(CALL, ask).await
    }
}

impl DoneMarks for ZooKeeper {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        let (key, version) = (key.clone(), version.clone());
        let ask = |shared, until| async move { beside::done(&shared, &key, &version, until).await };
        self.runner()?.ask_within(CALL, ask).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        let mark = (claim.clone(), version.clone(), keep);
        let ask = |shared, until| async move { beside::mark_done(&shared, &mark, until).await };
        self.runner()?.ask_within(CALL, ask).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        let (key, version) = (key.clone(), version.clone());
        let ask = |shared, until| async move { beside::forget_done(&shared, &key, &version, until).await };
        self.runner()?.ask_within(CALL, ask).await
    }
}
