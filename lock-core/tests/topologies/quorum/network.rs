//! Members of a quorum behind a network that a test breaks.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{
    AnyBackend, Clock, FencingToken, Holder, LockBackend, LockError, LockKey, LockManager, MemoryStore, Quorum, Result,
};
use lock_store::{
    AcquireRequest, Attempt, Capabilities, Claim, DoneMark, DoneMarks, Freed, Inbox, JobRecord, JobRecords, JobVersion,
    MemberList, QuorumMember, Release, Renewal, Vote,
};

/// The fate of commands on their way to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Up,
    /// They are refused at once.
    Refuses,
    /// They never arrive.
    Swallows,
    /// They are executed, and their answers get lost.
    Mutes,
    /// They arrive late.
    Delays(Duration),
    /// Votes are executed so much later, also when nobody waits for them any more, and not answered.
    LateVotes(Duration),
    /// The next vote arrives. Later votes are refused.
    OneVote,
    /// Votes are refused.
    NoVotes,
}

/// A member, and the network of one process to it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) store: MemoryStore,
    network: Arc<Mutex<Network>>,
    /// How far the member's clock is ahead, in ms.
    ahead: Arc<AtomicU64>,
    /// How often it was told of the end of a claim, whether that arrived or not.
    releases: Arc<AtomicU64>,
    votes: Arc<AtomicU64>,
}

impl Member {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        let network = Arc::new(Mutex::new(Network::Up));
        Self { store: store.clone(), network, ahead: Arc::default(), releases: Arc::default(), votes: Arc::default() }
    }

    /// Sets its clock ahead.
    pub(crate) fn lead_by(&self, ahead: Duration) {
        self.ahead.store(u64::try_from(ahead.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Returns how often it was told of the end of a claim, whether that arrived or not.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Relaxed)
    }

    /// Returns how often it was asked for a lock.
    pub(crate) fn votes(&self) -> u64 {
        self.votes.load(Ordering::Relaxed)
    }

    /// Votes by its own clock.
    async fn vote_ahead(&self, request: &AcquireRequest) -> Result<Vote> {
        let vote = self.store.vote(request).await?;
        let ahead = self.ahead.load(Ordering::Relaxed);
        let Vote::Granted { kept, history, time: Some(time), .. } = vote else { return Ok(vote) };
        if ahead == 0 {
            return Ok(vote);
        }
        let time = time + ahead;
        let floor = request.floor.max(FencingToken::new(time << 20));
        let mut raised = request.clone();
        raised.floor = floor;
        let again = self.store.vote(&raised).await?;
        let Vote::Granted { token, .. } = again else { return Ok(again) };
        Ok(Vote::Granted { token, kept, history, time: Some(time) })
    }

    pub(crate) fn set(&self, network: Network) {
        *self.network.lock().unwrap() = network;
    }

    async fn pass<T>(&self, command: impl Future<Output = T>, refused: impl FnOnce(LockError) -> T) -> T {
        let network = *self.network.lock().unwrap();
        match network {
            Network::Up | Network::LateVotes(_) | Network::OneVote | Network::NoVotes => command.await,
            Network::Refuses => refused(LockError::not_executed("the network refuses")),
            Network::Swallows => pending().await,
            Network::Mutes => {
                command.await;
                pending().await
            }
            Network::Delays(delay) => {
                tokio::time::sleep(delay).await;
                command.await
            }
        }
    }
}

impl LockBackend for Member {
    fn kind(&self) -> &'static str {
        "member"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::polled()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn drive(&self, _: Inbox) -> LockError {
        pending().await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.pass(self.store.try_acquire(request), Err).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.pass(self.store.renew(claims), |error| vec![Err(error); claims.len()]).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.releases.fetch_add(1, Ordering::Relaxed);
        self.pass(self.store.release(release), Err).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.pass(self.store.withdraw(claim), Err).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.pass(self.store.holder(key), Err).await
    }

    lock_store::has_parts! { member: QuorumMember, marks: DoneMarks, jobs: JobRecords }
}

impl DoneMarks for Member {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        self.pass(self.store.done(key, version), Err).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        self.pass(self.store.mark_done(claim, version, keep), Err).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.pass(self.store.forget_done(key, version), Err).await
    }
}

impl JobRecords for Member {
    async fn last_run(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        self.pass(self.store.last_run(key), Err).await
    }
}

impl QuorumMember for Member {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        self.votes.fetch_add(1, Ordering::Relaxed);
        let network = *self.network.lock().unwrap();
        match network {
            Network::LateVotes(delay) => {
                let (member, request) = (self.clone(), request.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = member.vote_ahead(&request).await;
                });
                return pending().await;
            }
            Network::OneVote => self.set(Network::NoVotes),
            Network::NoVotes => return Err(LockError::not_executed("the member refuses votes")),
            _ => {}
        }
        self.pass(self.vote_ahead(request), Err).await
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        self.pass(self.store.remember(list, keep_for), Err).await
    }

    async fn vouch(&self) -> Result<()> {
        self.pass(self.store.vouch(), Err).await
    }
}

/// A process: its manager, on virtual time, and its networks to the members.
pub(crate) struct Process {
    pub(crate) locks: LockManager,
    pub(crate) networks: Vec<Member>,
}

pub(crate) fn stores(count: usize) -> Vec<MemoryStore> {
    (0..count).map(|_| MemoryStore::new()).collect()
}

fn members(networks: &[Member]) -> Vec<AnyBackend> {
    networks.iter().zip('a'..).map(|(member, name)| AnyBackend::new(member.clone()).named(name.to_string())).collect()
}

/// Starts a process that uses these members.
pub(crate) fn process(stores: &[MemoryStore]) -> Process {
    process_with(stores, |quorum| quorum)
}

/// Makes a quorum that nobody drives.
pub(crate) fn undriven(stores: &[MemoryStore]) -> (Quorum, Vec<Member>) {
    let networks: Vec<Member> = stores.iter().map(Member::new).collect();
    (Quorum::of(members(&networks)).unwrap(), networks)
}

pub(crate) fn process_with(stores: &[MemoryStore], settings: impl FnOnce(Quorum) -> Quorum) -> Process {
    let networks: Vec<Member> = stores.iter().map(Member::new).collect();
    let quorum = settings(Quorum::of(members(&networks)).unwrap());
    let locks = LockManager::builder(quorum).drive_on_current_runtime().build().unwrap();
    Process { locks, networks }
}

impl Process {
    pub(crate) fn set(&self, members: impl IntoIterator<Item = usize>, network: Network) {
        for member in members {
            self.networks[member].set(network);
        }
    }
}
