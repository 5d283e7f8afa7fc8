//! Locks that end with a session, as in ZooKeeper, on virtual time. Each rule for such stores has a planted fault, with
//! which two processes hold one lock.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lock_core::{
    AnyBackend, FencingToken, Holder, HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, LockManager,
    LossReason, OwnerId, Quorum, Renew, Result,
};
use lock_store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_testing::limit;
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How long a session lasts after the leader has heard of its client.
const SESSION: Duration = Duration::from_secs(10);

/// The leader hears of a client by its server's regular messages. At a write, the last one may be this old.
const UNHEARD: Duration = Duration::from_secs(4);

/// The store rounds leases up: they last at least so long, and end a step late.
const MIN_LEASE: Duration = Duration::from_millis(600);
const STEP: Duration = Duration::from_millis(200);

/// A fault that is planted in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Its answers promise the whole ttl.
    WholeTtl,
    /// Its answers promise the whole session.
    WholeSession,
    /// It takes the answer to a read for a renewal.
    ReadsCount,
    /// It renews claims of an earlier session.
    AnySession,
}

/// The servers of the store, by the state of their leader.
#[derive(Debug, Default)]
pub(crate) struct Leader {
    nodes: HashMap<LockKey, Node>,
    sessions: u64,
    /// When the sessions end that the leader hears of no more.
    ends: HashMap<u64, Instant>,
    /// How many tokens were drawn.
    drawn: u64,
}

#[derive(Debug)]
struct Node {
    /// `None` while a released lock is kept taken.
    owner: Option<OwnerId>,
    /// The session with which the node ends. `None` if it outlives its session.
    session: Option<u64>,
    info: HolderInfo,
    token: FencingToken,
    /// When the client removes the node unless it renews the claim.
    expires: Instant,
}

impl Node {
    /// A client that the leader hears of no more cannot remove its nodes.
    fn lives(&self, ends: &HashMap<u64, Instant>, now: Instant) -> bool {
        let session_ends = self.session.and_then(|session| ends.get(&session).copied());
        now < session_ends.unwrap_or(self.expires + STEP)
    }

    fn holder(&self, now: Instant) -> Holder {
        let mut holder = Holder::foreign(Some(self.expires.saturating_duration_since(now)));
        (holder.info, holder.owner, holder.token) = (Some(self.info.clone()), self.owner, Some(self.token));
        if self.owner.is_some() { holder } else { holder.kept() }
    }
}

impl Leader {
    fn open_session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    /// Removes the nodes that have ended, and returns the node of a lock.
    fn node(&mut self, key: &LockKey, now: Instant) -> Option<&mut Node> {
        let ends = &self.ends;
        self.nodes.retain(|_, node| node.lives(ends, now));
        self.nodes.get_mut(key)
    }

    /// Draws a token without a clock.
    fn draw(&mut self, floor: FencingToken) -> FencingToken {
        let before = floor.max(FencingToken::PLAIN).get() / FencingToken::PER_GRANT;
        self.drawn = self.drawn.max(before) + 1;
        FencingToken::new(self.drawn * FencingToken::PER_GRANT)
    }
}

/// The store of one process, which has a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionStore {
    leader: Arc<Mutex<Leader>>,
    client: Arc<Mutex<Client>>,
    fault: Fault,
}

#[derive(Debug)]
struct Client {
    session: u64,
    /// When the last write was answered.
    wrote: Instant,
    /// Whether its server is cut off from the leader.
    cut: bool,
}

impl SessionStore {
    pub(crate) fn new(leader: &Arc<Mutex<Leader>>, fault: Fault) -> Self {
        let client = Client { session: leader.lock().unwrap().open_session(), wrote: Instant::now(), cut: false };
        Self { leader: Arc::clone(leader), client: Arc::new(Mutex::new(client)), fault }
    }

    fn manager(&self) -> LockManager {
        LockManager::builder(self.clone()).drive_on_current_runtime().build().unwrap()
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap()
    }

    /// Lets the session end, as early as it may: the leader hears of it no more.
    fn end_session(&self) {
        let client = self.client.lock().unwrap();
        let end = Instant::now().max(client.wrote + SESSION - UNHEARD);
        self.leader().ends.insert(client.session, end);
    }

    /// Cuts the client's server off from the leader.
    fn cut(&self) {
        self.end_session();
        self.client.lock().unwrap().cut = true;
    }

    /// Opens another session, as a client does by itself if it takes the first one for expired.
    fn replace_session(&self) {
        self.end_session();
        let session = self.leader().open_session();
        self.client.lock().unwrap().session = session;
    }

    /// Writes in the client's session, and returns it. A server that is cut off never answers.
    async fn write(&self) -> u64 {
        let session = {
            let mut client = self.client.lock().unwrap();
            if !client.cut {
                client.wrote = Instant::now();
            }
            (!client.cut).then_some(client.session)
        };
        match session {
            Some(session) => session,
            None => pending().await,
        }
    }

    /// Returns how long the store promises a lock, if that is less than the ttl.
    fn lease(&self, ttl: Duration) -> Option<Duration> {
        let promised = match self.fault {
            Fault::WholeTtl => return None,
            Fault::WholeSession => SESSION,
            _ => SESSION / 2,
        };
        (promised < ttl).then_some(promised)
    }

    fn renewed(&self, claim: &Claim) -> Renewal {
        self.lease(claim.ttl).map_or(Renewal::Renewed, Renewal::RenewedFor)
    }
}

impl LockBackend for SessionStore {
    fn kind(&self) -> &'static str {
        "session"
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled();
        (known.min_lease, known.lease_step, known.sessions) = (MIN_LEASE, STEP, true);
        known
    }

    async fn drive(&self, _: Inbox) -> LockError {
        pending().await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let AcquireRequest { claim, info, floor, .. } = request;
        if floor.get() > FencingToken::PLAIN.get() / 2 * 3 {
            return Err(LockError::misconfigured(
                "the floor leaves too little room for tokens; find out who stored it",
            ));
        }
        let session = Some(self.write().await);
        let (mut leader, now) = (self.leader(), Instant::now());
        if let Some(node) = leader.node(&claim.key, now).filter(|node| node.owner != Some(claim.owner)) {
            return Ok(Attempt::Held { holder: node.holder(now) });
        }
        let (token, expires) = (leader.draw(*floor), now + claim.ttl.max(MIN_LEASE));
        let node = Node { owner: Some(claim.owner), session, info: info.clone(), token, expires };
        leader.nodes.insert(claim.key.clone(), node);
        Ok(Attempt::Granted { token, lease: self.lease(claim.ttl) })
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let is_cut = self.client.lock().unwrap().cut;
        if is_cut && self.fault == Fault::ReadsCount {
            return one_lane.iter().map(|claim| Ok(self.renewed(claim))).collect();
        }
        let session = self.write().await;
        let (mut leader, now) = (self.leader(), Instant::now());
        let renew = |claim: &Claim| match leader.node(&claim.key, now) {
            Some(node)
                if node.owner == Some(claim.owner)
                    && (node.session == Some(session) || self.fault == Fault::AnySession) =>
            {
                node.expires = node.expires.max(now + claim.ttl.max(MIN_LEASE));
                Ok(self.renewed(claim))
            }
            _ => Ok(Renewal::Lost),
        };
        one_lane.iter().map(renew).collect()
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.write().await;
        let (mut leader, now, key) = (self.leader(), Instant::now(), &release.claim.key);
        let Some(node) = leader.node(key, now).filter(|node| node.owner == Some(release.claim.owner)) else {
            return Ok(Freed::NotHeld);
        };
        if release.keep_for.is_zero() {
            leader.nodes.remove(key);
        } else {
            (node.owner, node.session, node.expires) = (None, None, now + release.keep_for);
        }
        Ok(Freed::Released)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.release(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let now = Instant::now();
        Ok(self.leader().node(key, now).map(|node| node.holder(now)))
    }
}

/// Two processes on the same servers.
fn processes(fault: Fault) -> [SessionStore; 2] {
    let leader = Arc::default();
    [(); 2].map(|()| SessionStore::new(&leader, fault))
}

/// Returns whether a second process gets a lock while its holder still relies on it. After some time, the holder is in
/// trouble.
async fn two_hold(fault: Fault, trouble: fn(&SessionStore), after: Duration) -> bool {
    let stores = processes(fault);
    let [ours, theirs] = stores.each_ref().map(SessionStore::manager);
    let guard = ours.lock("k").with_ttl(30 * SECOND).await.unwrap();
    sleep(after).await;
    guard.ensure_held().unwrap();
    trouble(&stores[0]);
    let began = Instant::now();
    loop {
        sleep(50 * MS).await;
        if let Some(next) = theirs.lock("k").try_acquire().await.unwrap() {
            let both = guard.ensure_held().is_ok();
            assert!(began.elapsed() <= SESSION, "the lock is free when the session has ended");
            assert!(next.token() > guard.token() && next.token().drawn_at().is_none());
            return both;
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_holder_stops_before_its_session_ends_and_each_fault_makes_two_holders() {
    let troubles: [fn(&SessionStore); 2] = [SessionStore::cut, SessionStore::replace_session];
    let rows = [
        (Fault::None, 0, false),
        (Fault::None, 1, false),
        (Fault::WholeTtl, 0, true),
        (Fault::WholeSession, 0, true),
        (Fault::ReadsCount, 0, true),
        (Fault::AnySession, 1, true),
    ];
    for (fault, trouble, found) in rows {
        let mut both = false;
        for part in 0..10 {
            both |= two_hold(fault, troubles[trouble], part * 490 * MS).await;
        }
        assert_eq!(both, found, "{fault:?}: two processes held the lock");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_fixed_lease_is_given_in_parts_until_its_ttl() {
    let [ours, theirs] = processes(Fault::None).map(|store| store.manager());
    let fixed = async |ttl: Duration| ours.lock("k").with_ttl(ttl).with_renew(Renew::Off).await.unwrap();
    let (long, short) = (30 * SECOND, 3 * SECOND);
    for extended in [false, true] {
        let began = Instant::now();
        let guard = fixed(if extended { short } else { long }).await;
        if extended {
            guard.extend(long).await.unwrap();
        }
        sleep(29 * SECOND).await;
        guard.ensure_held().unwrap();
        assert!(theirs.lock("k").try_acquire().await.unwrap().is_none());
        assert_eq!(guard.lost().await, LossReason::Expired);
        assert!(began.elapsed() <= long, "{:?}", began.elapsed());
        drop(guard);
        theirs.lock("k").with_wait(5 * SECOND).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_claim_ends_its_ttl_after_its_last_renewal_while_its_session_lives() {
    let [ours, theirs] = processes(Fault::None).map(|store| store.manager());
    let _other = ours.lock("other").await.unwrap();
    let began = Instant::now();
    // Its owner keeps it, and does nothing about the loss.
    let leaked = ours.lock("k").with_ttl(12 * SECOND).with_max_hold(2 * SECOND).await.unwrap();
    let _next = theirs.lock("k").with_wait(60 * SECOND).await.unwrap();
    assert!((10 * SECOND..20 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(leaked.ensure_held().unwrap_err().loss_reason(), Some(LossReason::MaxHold));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_must_outlive_its_process_is_refused() {
    let [ours, theirs] = processes(Fault::None).map(|store| store.manager());
    let job = ours.lock("cron").at_most_every(3600 * SECOND).run_once_even_if_crashed();
    let error = job.run(async |_| -> Result<()> { panic!("it must not run") }).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    // Also one that is shorter than the session: no other process could renew it.
    let error = ours.lease("ci").holder("job-1").ttl(SECOND).acquire().await.unwrap_err();
    assert!(error.to_string().contains("end with their process"), "{error}");
    theirs.lock("cron").with_wait(SECOND).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_of_a_quorum_gives_no_vote_that_ends_before_the_ttl() {
    let member = |name: &'static str| AnyBackend::new(SessionStore::new(&Arc::default(), Fault::None)).named(name);
    let quorum = Quorum::of(["a", "b", "c"].map(member)).unwrap();
    let locks = LockManager::builder(quorum).drive_on_current_runtime().build().unwrap();
    let error = locks.lock("k").with_ttl(30 * SECOND).await.unwrap_err();
    assert!(error.to_string().contains("a shorter ttl in the quorum"), "{error}");
    // Each member has given its vote back.
    let guard = locks.lock("k").with_ttl(4 * SECOND).await.unwrap();
    sleep(20 * SECOND).await;
    guard.ensure_held().unwrap();
}
