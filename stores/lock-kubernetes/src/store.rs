//! The contract of a store, over the calls.

use std::sync::Arc;
use std::time::Duration;

use lock_store::thread::StoreThread;
use lock_store::types::options::command_timeout;
use lock_store::{
    AcquireRequest, Attempt, Capabilities, Claim, Doctor, DoneMark, DoneMarks, Freed, Holder, Inbox, Inspector,
    JobRecord, JobRecords, JobVersion, LockBackend, LockError, LockKey, Release, Renewal, Result,
};

use crate::calls::{acquire, beside, release, renew};
use crate::names::lease_of;
use crate::runner::attend;
use crate::shared::Shared;
use crate::url::Settings;

/// How long a call without a time-out of its own may take.
pub(crate) const CALL: Duration = Duration::from_secs(5);

/// A Lease lasts for whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Locks in Kubernetes Leases, 1.35 or newer.
///
/// [`LockManager::connect`](https://docs.rs/lock-core/latest/lock_core/struct.LockManager.html#method.connect) makes it of a URL. By hand:
///
/// ```
/// use lock_core::LockManager;
/// use lock_kubernetes::Kubernetes;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let locks = LockManager::builder(Kubernetes::new("kubernetes:///")?).connect().await?;
/// let leader = locks.elect("billing-controller");
/// # drop(leader);
/// # Ok(())
/// # }
/// ```
///
/// Clones are one store with one watch.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    pub(crate) thread: Arc<StoreThread<Shared>>,
}

impl Kubernetes {
    /// Takes a URL: `kubernetes://[context]/[namespace][?kubeconfig=…]`. Opens nothing.
    ///
    /// - In a pod, `kubernetes:///` uses its service account and its namespace. Elsewhere it uses the current context.
    /// - The context is one of `KUBECONFIG`, of `~/.kube/config`, or of the file `kubeconfig`. Percent-encode a slash in its name as `%2F`.
    /// - Without a namespace, it is that of the context.
    /// - An API server older than 1.35 is refused, because fencing tokens need versions that may be compared. `tokens=unchecked` accepts
    ///   it. Use that only if no resource checks tokens.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) for a URL that cannot be understood.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { thread: Arc::new(StoreThread::new(Settings::read(url)?)) })
    }
}

impl LockBackend for Kubernetes {
    fn kind(&self) -> &'static str {
        "kubernetes"
    }

    /// Without a queue: neither this library nor client-go knows in which order the waiters of both have come.
    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled();
        (known.wakes, known.min_lease, known.lease_step) = (true, SECOND, SECOND);
        known
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        match self.thread.shared() {
            Ok(shared) => attend(shared, &inbox).await,
            Err(error) => error,
        }
    }

    async fn ping(&self) -> Result<()> {
        let ask = |shared: Arc<Shared>, until| async move { shared.api.ping(until).await };
        self.thread.ask_within(CALL, ask).await
    }

    fn node(&self, _: u16) -> &str {
        &self.thread.settings.node
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let claim = &request.claim;
        if claim.mode.is_shared() {
            return Err(claim.mode.unknown_to_store().with_key(&claim.key));
        }
        self.thread.acquire(request, acquire::acquire).await
    }

    fn is_contended(&self, key: &LockKey) -> bool {
        let contended = |shared: &Arc<Shared>| shared.waiters.is_contended(&lease_of(key), shared.now());
        self.thread.started().is_some_and(contended)
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let claims = one_lane.to_vec();
        // Renewals have a time limit of their own, which is shorter.
        let ask = |shared: Arc<Shared>, _| async move { Ok(renew::renew(&shared, &claims).await) };
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

    lock_store::has_parts! { jobs: JobRecords, marks: DoneMarks, inspector: Inspector, doctor: Doctor }
}

impl JobRecords for Kubernetes {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let key = key.clone();
        self.thread.ask_within(CALL, |shared, until| beside::last_run(shared, key, until)).await
    }
}

impl DoneMarks for Kubernetes {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        let (key, version) = (key.clone(), version.clone());
        self.thread.ask_within(CALL, |shared, until| beside::done(shared, key, version, until)).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        let mark = (claim.clone(), version.clone(), keep);
        self.thread.ask_within(CALL, |shared, until| beside::mark_done(shared, mark, until)).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        let (key, version) = (key.clone(), version.clone());
        self.thread.ask_within(CALL, |shared, until| beside::forget_done(shared, key, version, until)).await
    }
}
