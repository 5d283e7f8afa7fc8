//! One lock over several independent stores: it is held while a majority of them holds it.
//!
//! RedLock, with what it lacks: tokens that rise, members that may restart, members that may be added.

mod acquire;
mod ask;
mod members;
mod release;
mod repair;
mod round;
mod session;
mod turns;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::backend::{
    AcquireRequest, AnyBackend, Attempt, BoxFuture, Capabilities, Claim, Freed, Inbox, LockBackend, MemberList,
    NodeReport, Release, Renewal, SyncReport, drive_again,
};
use crate::clock::Clock;
use crate::error::{LockError, Result};
use crate::key::LockKey;
use crate::options::command_timeout;
use crate::owner::Holder;
use crate::quorum::ask::Asked;
use crate::quorum::members::{Member, MemberTime, refreshed_every};
use crate::quorum::session::Sessions;
use crate::quorum::turns::Turns;

/// One lock over several independent stores: it is held while a majority of them holds it.
///
/// It survives the loss of any minority of its members, data included, without a moment of two holders. It needs
/// an odd number of members, three at least, that fail independently: servers without replicas of each other, on
/// different machines. Clients of the RedLock algorithm in other languages that use the same members exclude it
/// and are excluded by it.
///
/// A member that restarts or is flushed may have given a lock away before. It says since when it has kept its data,
/// and does not count until every lease from before has ended: [`with_max_ttl`](Self::with_max_ttl) bounds that
/// time and every ttl. A new quorum begins the same way, unless [`init`](Self::init) has been called once.
///
/// Every process must name the same members. Members are added or removed one at a time: change the list in one
/// process after the other, then the next member.
///
/// Waiters poll, one per process and key: there is no queue over all processes.
///
/// ```
/// use lock_core::{AnyBackend, LockManager, MemoryStore, Quorum};
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let members = ["a", "b", "c"].map(|name| AnyBackend::new(MemoryStore::new()).named(name));
/// let locks = LockManager::builder(Quorum::of(members)?).build()?;
/// let guard = locks.lock("report").await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Quorum {
    shared: Arc<Shared>,
}

/// What the rounds of one quorum share.
struct Shared {
    members: Vec<Member>,
    /// Their names, for metrics and messages.
    name: Arc<str>,
    list: MemberList,
    restarts: Restarts,
    sessions: Arc<Sessions>,
    turns: Turns,
    time: MemberTime,
    /// The newest token that a majority gave.
    newest: AtomicU64,
    clock: OnceLock<Clock>,
    /// The runtime of the keeper, on which rounds run: they outlive their callers.
    home: Mutex<Option<Handle>>,
}

/// What a restart of a member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Restarts {
    /// It may have lost what it granted, so it does not count for a while. The default.
    #[default]
    Forget,
    /// It loses nothing, as with `appendfsync always` on a disk that keeps what it confirmed: it counts at once.
    Remember,
}

impl Quorum {
    /// Joins stores to a quorum, of which a majority must agree.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for fewer than three members, and for
    /// two of the same name.
    pub fn of(members: impl IntoIterator<Item = AnyBackend>) -> Result<Self> {
        let members: Vec<Member> = members.into_iter().map(Member::new).collect();
        let mut names: Vec<String> = members.iter().map(|member| (*member.name).to_owned()).collect();
        names.sort_unstable();
        let count = names.len();
        if count < 3 {
            return Err(LockError::misconfigured(format!(
                "a quorum of {count} survives the loss of none; name at least three independent stores, or use one by its \
                 own URL",
            )));
        }
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LockError::misconfigured(format!(
                "two members of the quorum are named {}: each store votes once; name different ones, or use \
                 AnyBackend::named",
                pair[0],
            )));
        }
        if let Some(name) = names.iter().find(|name| name.contains([',', '|'])) {
            return Err(LockError::misconfigured(format!(
                "{name:?} cannot be the name of a member: it contains a comma or a bar; use AnyBackend::named",
            )));
        }
        if count.is_multiple_of(2) {
            tracing::warn!(
                members = count,
                "a quorum of an even number of members survives no more failures than one of a member less; add one, or \
                 remove one"
            );
        }
        let list = MemberList::new(names, count / 2 + 1, Duration::from_secs(60));
        let name = members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(",").into();
        let shared = Shared {
            members,
            name,
            list,
            restarts: Restarts::Forget,
            sessions: Arc::default(),
            turns: Turns::default(),
            time: MemberTime::default(),
            newest: AtomicU64::new(0),
            clock: OnceLock::new(),
            home: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Asks for more than a majority, up to all of the members, which others call a MultiLock: the lock then lasts
    /// only while they all are there.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for less than a majority, and for more
    /// members than there are.
    pub fn with_majority(self, members: usize) -> Result<Self> {
        let all = self.shared.members.len();
        if members <= all / 2 || members > all {
            return Err(LockError::misconfigured(format!(
                "{members} of {all} members is no majority that can be reached; use {} to {all}",
                all / 2 + 1,
            )));
        }
        Ok(self.edit(|shared| shared.list.majority = members))
    }

    /// Bounds the ttl of every lock, and with it for how long a member that lost its data does not count. Default one
    /// minute.
    #[must_use]
    pub fn with_max_ttl(self, max_ttl: Duration) -> Self {
        self.edit(|shared| shared.list.max_ttl = max_ttl)
    }

    /// Says whether members may lose data when they restart.
    #[must_use]
    pub fn with_restarts(self, restarts: Restarts) -> Self {
        self.edit(|shared| shared.restarts = restarts)
    }

    /// Declares that no member has ever granted a lock that may still be held: they count from now on. For a quorum
    /// that is new; otherwise two processes may hold one lock.
    ///
    /// # Errors
    ///
    /// Those of the first member that cannot be told.
    ///
    /// # Cancel safety
    ///
    /// Members that were not told yet stay as they are. Safe to repeat.
    pub async fn init(&self) -> Result<()> {
        for member in &self.shared.members {
            member.backend().vouch_dyn().await?;
        }
        Ok(())
    }

    /// Changes a setting. It is not in use yet, unless it was cloned.
    fn edit(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        match Arc::get_mut(&mut self.shared) {
            Some(shared) => change(shared),
            None => tracing::warn!("a quorum that is in use keeps its settings; make them before it is cloned"),
        }
        self
    }

    /// Runs a round on the keeper, where it goes on after it has answered, or here while there is no keeper. It is
    /// dropped with this future, unless it has answered.
    async fn run<T: Send + 'static>(&self, round: impl Future<Output = (T, Rest)> + Send + 'static) -> Result<T> {
        let home = self.shared.home.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let home = home.or_else(|| Handle::try_current().ok()).ok_or_else(|| {
            LockError::misconfigured("the quorum was polled outside of a tokio runtime; call it from a task of one")
        })?;
        let (mut sender, receiver) = oneshot::channel();
        home.spawn(async move {
            tokio::select! {
                biased;
                () = sender.closed() => {}
                (answer, rest) = round => {
                    let _ = sender.send(answer);
                    rest.0.await;
                }
            }
        });
        receiver.await.map_err(|_| LockError::unavailable("the keeper has ended with the runtime it was driven on"))
    }
}

impl Shared {
    fn clock(&self) -> &Clock {
        self.clock.get_or_init(Clock::system)
    }

    fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.name).collect()
    }

    /// Refuses leases that outlive the time in which a member does not count.
    fn admit_ttl(&self, ttl: Duration) -> Result<()> {
        let most = self.list.max_ttl;
        if ttl <= most {
            return Ok(());
        }
        Err(LockError::misconfigured(format!(
            "a ttl of {ttl:?} exceeds the quorum's max_ttl of {most:?}; use a shorter ttl, or write max_ttl={}s in every \
             process",
            ttl.as_secs_f64().ceil(),
        )))
    }

    /// Refuses locks that this quorum must not give.
    fn admit(&self, ttl: Duration) -> Result<()> {
        self.admit_ttl(ttl)?;
        self.members.iter().try_for_each(|member| member.check(&self.list))
    }

    /// Returns for how much longer a member does not count that has kept its data for so long.
    fn excluded_for(&self, history: Duration) -> Option<Duration> {
        if self.restarts == Restarts::Remember {
            return None;
        }
        let longest = self.members.iter().map(Member::longest_ttl).max().unwrap_or_default().max(self.list.max_ttl);
        (longest + command_timeout(longest)).checked_sub(history).filter(|left| !left.is_zero())
    }
}

/// For how long a member may answer.
fn patience(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(20), Duration::from_millis(250))
}

/// What a round still does after it has answered.
struct Rest(BoxFuture<'static, ()>);

impl Rest {
    fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }

    fn nothing() -> Self {
        Self(Box::pin(Nothing))
    }
}

/// Nothing: needs no room on the heap.
struct Nothing;

impl Future for Nothing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quorum({} of {})", self.shared.list.majority, self.shared.names().join(", "))
    }
}

/// Notes where rounds run, until it is dropped.
struct Home<'a>(&'a Shared);

impl<'a> Home<'a> {
    fn here(shared: &'a Shared) -> Self {
        *shared.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(Handle::current());
        Self(shared)
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        *self.0.home.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl LockBackend for Quorum {
    fn kind(&self) -> &'static str {
        "quorum"
    }

    fn node(&self, _: u16) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> Capabilities {
        let known: Vec<Capabilities> =
            self.shared.members.iter().map(|member| member.backend.capabilities_dyn()).collect();
        let mut ours = Capabilities::polled();
        // A member that tells of a loss is given the claim again at once.
        ours.push_loss = known.iter().any(|member| member.push_loss);
        ours.shared = known.iter().all(|member| member.shared);
        ours
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.shared.clock.set(clock.clone());
        self.shared.members.iter().for_each(|member| member.backend.attach_dyn(clock));
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        let _home = Home::here(&self.shared);
        let mut tasks = JoinSet::new();
        for member in &self.shared.members {
            tasks.spawn(drive_again(member.backend(), inbox.clone(), self.shared.clock().clone()));
        }
        for member in 0..self.shared.members.len() {
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move { remain_member(&shared, member).await });
        }
        while tasks.join_next().await.is_some() {}
        LockError::unavailable("the members' background work ended")
    }

    async fn ping(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { (ping(&shared).await, Rest::nothing()) }).await?
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.run(acquire::acquire(Arc::clone(&self.shared), request.clone())).await?
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        match self.run(repair::renew(Arc::clone(&self.shared), one_lane.to_vec())).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); one_lane.len()],
        }
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.run(release::release(Arc::clone(&self.shared), release.clone())).await?
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.release(&Release::new(claim.clone())).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let report = self.sync(key).await;
        let answered = report.nodes.iter().filter(|node| node.holder.is_ok()).count();
        if answered >= report.majority {
            return Ok(report.holder().cloned());
        }
        let why = report.nodes.into_iter().find_map(|node| node.holder.err());
        Err(why.unwrap_or_else(|| LockError::unavailable("no member answered")).with_key(key))
    }

    async fn sync(&self, key: &LockKey) -> SyncReport {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        let asking = async move { (sync(&shared, &key).await, Rest::nothing()) };
        self.run(asking).await.unwrap_or_else(|error| {
            let nodes = self.shared.members.iter().map(|member| NodeReport::new(&*member.name, Err(error.clone())));
            SyncReport::new(nodes.collect(), self.shared.list.majority)
        })
    }
}

/// Has a member remember the list for as long as this process uses it.
async fn remain_member(shared: &Arc<Shared>, member: usize) {
    let (at, clock) = (&shared.members[member], shared.clock());
    loop {
        let refused = tokio::select! {
            refreshed = at.remain(&shared.list) => refreshed,
            () = clock.sleep_until(clock.now().after(repair::REFRESH)) => Ok(()),
        };
        if let Err(error) = refused {
            tracing::warn!(member = &*at.name, %error, "this member of the quorum cannot be used");
        }
        clock.sleep_until(clock.now().after(refreshed_every(&shared.list))).await;
    }
}

/// Checks that a majority answers, and that no member refuses us.
async fn ping(shared: &Arc<Shared>) -> Result<()> {
    let mut asked = Asked::of(shared.members.iter().map(|member| {
        let (backend, shared) = (member.backend(), Arc::clone(shared));
        let name = Arc::clone(&member.name);
        Some(Box::pin(async move {
            backend.ping_dyn().await?;
            let member = shared.members.iter().find(|member| member.name == name);
            match member {
                Some(member) => member.join(&shared.list).await,
                None => Ok(()),
            }
        }) as BoxFuture<'static, Result<()>>)
    }));
    let (mut up, mut errors) = (0, Vec::new());
    while let Some((member, answer)) = asked.next().await {
        match answer {
            Ok(()) => up += 1,
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => errors.push(format!("{}: {error}", shared.members[member].name)),
        }
    }
    let (all, majority) = (shared.members.len(), shared.list.majority);
    if up >= majority {
        return Ok(());
    }
    Err(LockError::not_executed(format!(
        "only {up} of {all} members answer, and {majority} must; bring them back, or correct their addresses ({})",
        errors.join("; "),
    )))
}

/// Asks every member who holds a key.
async fn sync(shared: &Arc<Shared>, key: &LockKey) -> SyncReport {
    let unknown = || Err(LockError::unavailable("it did not answer in time"));
    let mut nodes: Vec<NodeReport> =
        shared.members.iter().map(|member| NodeReport::new(&*member.name, unknown())).collect();
    let mut asked = Asked::of(shared.members.iter().map(|member| Some(member.backend().holder_dyn(key.clone()))));
    let clock = shared.clock();
    let mut limit = std::pin::pin!(clock.sleep_until(clock.now().after(Duration::from_secs(1))));
    loop {
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some((member, holder)) => nodes[member].holder = holder,
                None => break,
            },
            () = &mut limit => break,
        }
    }
    SyncReport::new(nodes, shared.list.majority)
}
