//! The contract of a store, over the calls.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LockGuard;
use lock_store::thread::StoreThread;
use lock_store::types::options::command_timeout;
use lock_store::{
    AcquireRequest, Attempt, Capabilities, Claim, Doctor, DoneMark, DoneMarks, Freed, Holder, Inbox, Inspector,
    JobRecord, JobRecords, JobVersion, LockBackend, LockError, LockKey, QuorumMember, Release, Renewal, Result, Vote,
};

use crate::calls::{acquire, beside, release, renew, vote};
use crate::runner::attend;
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
    pub(crate) thread: Arc<StoreThread<Shared>>,
}

impl ZooKeeper {
    /// Takes a [URL](crate#the-url). Opens nothing.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) for a URL that cannot be understood.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { thread: Arc::new(StoreThread::new(Settings::read(url)?)) })
    }

    /// Names the node of a held lock, for a check in your own `multi` with ZooKeeper.
    ///
    /// If the lock was lost, the check fails with *no node*, and nothing of the `multi` is done. [An example](crate#in-your-own-multi).
    /// Hold the guard until the `multi` is answered.
    ///
    /// The path counts from the root of the servers, and your client may not have a chroot. It may belong to any session.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`](lock_core::LockErrorKind::Lost) if the lock is lost, and
    /// [`LockErrorKind::Misconfigured`](lock_core::LockErrorKind::Misconfigured) if the guard belongs to another store.
    pub fn pin(&self, guard: &LockGuard) -> Result<String> {
        guard.ensure_held()?;
        let path = self.thread.started().and_then(|shared| shared.places.holding(guard.key(), guard.token()));
        path.ok_or_else(|| {
            LockError::misconfigured("this store did not grant the lock of the guard").with_key(guard.key())
        })
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
        match self.thread.shared() {
            Ok(shared) => attend(shared, &inbox).await,
            Err(error) => error,
        }
    }

    async fn ping(&self) -> Result<()> {
        let ask = |shared: Arc<Shared>, until| async move { shared.session(until).await.map(drop) };
        self.thread.ask_within(CALL, ask).await
    }

    fn node(&self, _: u16) -> &str {
        &self.thread.settings.hosts
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let claim = &request.claim;
        if claim.mode.is_shared() {
            return Err(claim.mode.unknown_to_store().with_key(&claim.key));
        }
        self.thread.acquire(request, acquire::acquire).await
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        self.thread.started().is_some_and(|shared| shared.is_contended(key))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let claims = one_lane.to_vec();
        // Renewals have a time limit of their own, which is shorter.
        let ask = |shared: Arc<Shared>, _| async move { Ok(renew::renew(shared, claims).await) };
        let renewed = self.thread.ask_within(2 * CALL, ask).await;
        renewed.unwrap_or_else(|error| vec![Err(error); one_lane.len()])
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        let (release, bound) = (release.clone(), command_timeout(release.claim.ttl).max(CALL));
        let ask = |shared: Arc<Shared>, until| async move {
            let _turn = shared.turn(release.claim.owner, until).await?;
            release::release(&shared, &release, until).await.map_err(|error| error.with_key(&release.claim.key))
        };
        self.thread.ask_within(bound, ask).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.release(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let key = key.clone();
        self.thread.ask_within(CALL, |shared, until| beside::holder(shared, key, until)).await
    }

    lock_store::has_parts! { jobs: JobRecords, marks: DoneMarks, inspector: Inspector, doctor: Doctor, member: QuorumMember }
}

impl QuorumMember for ZooKeeper {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        self.thread.acquire(request, vote::vote).await
    }
}

impl JobRecords for ZooKeeper {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let key = key.clone();
        let ask = |shared: Arc<Shared>, until| async move {
            let session = shared.session(until).await?;
            beside::last_run(&shared, &session, &key).await
        };
        self.thread.ask_within(CALL, ask).await
    }
}

impl DoneMarks for ZooKeeper {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        let work = (key.clone(), version.clone());
        self.thread.ask_within(CALL, |shared, until| beside::done(shared, work, until)).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        let mark = (claim.clone(), version.clone(), keep);
        self.thread.ask_within(CALL, |shared, until| beside::mark_done(shared, mark, until)).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        let work = (key.clone(), version.clone());
        self.thread.ask_within(CALL, |shared, until| beside::forget_done(shared, work, until)).await
    }
}
