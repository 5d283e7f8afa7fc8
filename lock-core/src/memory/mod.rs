//! The in-process store: always compiled, and the executable specification of every other store.

mod blocked;
#[cfg(feature = "test-util")]
mod faults;
mod member;
mod named;
mod queue;

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, Blocked, Capabilities, Claim, Freed, Inbox, LockBackend, MemberList, Release,
    Renewal, Vote,
};
use crate::clock::{Clock, Timestamp};
use crate::error::{LockError, Result};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::memory::member::Membership;
use crate::memory::queue::Queue;
use crate::owner::{Holder, HolderInfo, OwnerId};

/// Locks in the memory of this process, for tests and for programs that run alone.
///
/// Clones share the locks: the managers of two clones exclude each other as two processes do that share
/// a Redis.
///
/// ```
/// use lock_core::{LockManager, MemoryStore};
///
/// let store = MemoryStore::new();
/// let web_3 = LockManager::builder(store.clone()).host("web-3").build()?;
/// let web_4 = LockManager::builder(store).host("web-4").build()?;
/// # drop((web_3, web_4));
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The clock of the first manager that uses this store.
    clock: OnceLock<Clock>,
    blocked: blocked::BlockedHolders,
    #[cfg(feature = "test-util")]
    faults: faults::Faults,
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<LockKey, Slot>,
    queues: HashMap<LockKey, Queue>,
    /// The processes that can receive grants.
    inboxes: HashMap<Arc<str>, Inbox>,
    /// The clock from which tokens are drawn, as milliseconds and 13 bits of sequence. One clock serves
    /// all keys: it also rises for each single key, and forgotten keys cost no memory.
    drawn: u64,
    /// The number of entries at which expired ones are swept out.
    sweep_at: usize,
    membership: Membership,
}

#[derive(Debug)]
struct Slot {
    /// `None` while a released lock is kept taken for its `min_hold`.
    owner: Option<OwnerId>,
    info: HolderInfo,
    token: FencingToken,
    expires: Timestamp,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails the next commands, like a store that is briefly unreachable. None of them is executed.
    ///
    /// An acquire that may still wait tries again, so it can use up several of these failures.
    #[cfg(feature = "test-util")]
    pub fn fail_next(&self, count: u32) {
        self.shared.faults.fail_next(count);
    }

    /// Takes the store away, or brings it back. Its locks stay, and end when their leases do.
    #[cfg(feature = "test-util")]
    pub fn set_away(&self, away: bool) {
        self.shared.faults.set_away(away);
    }

    /// Deletes a key as a stranger would, without asking who owns it.
    #[cfg(feature = "test-util")]
    pub fn steal(&self, key: &LockKey) {
        self.state().locks.remove(key);
    }

    /// Loses all data, as a server does that restarts with an empty memory. The next tokens may be less than those
    /// before.
    #[cfg(feature = "test-util")]
    pub fn lose_data(&self) {
        let now = self.now();
        self.state().lose_data(now);
    }

    /// Returns how many keys are taken or waited for now.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.now();
        let state = self.state();
        state.locks.values().filter(|slot| slot.expires > now).count() + state.queues.len()
    }

    /// Returns whether no key is taken or waited for now.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.get_or_init(Clock::system).now()
    }

    /// The state, for one command of a manager.
    #[cfg_attr(not(feature = "test-util"), expect(clippy::unnecessary_wraps, reason = "only tests make it fail"))]
    fn command(&self) -> Result<MutexGuard<'_, State>> {
        #[cfg(feature = "test-util")]
        self.shared.faults.check()?;
        Ok(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn acquire(&mut self, request: &AcquireRequest, now: Timestamp) -> Attempt {
        let Claim { key, owner, ttl, .. } = &request.claim;
        if self.confirm(&request.claim, now) {
            self.leave_queue(key, *owner);
            return Attempt::Granted { token: self.draw_again(request, now) };
        }
        if self.is_free(key, now) {
            let granted = self.move_on(key, now, Some(*owner));
            if granted || self.is_free(key, now) {
                self.leave_queue(key, *owner);
                let token = self.grant(request, *ttl, now);
                return Attempt::Granted { token };
            }
        }
        let holder = self.locks.get(key).map_or_else(|| Holder::foreign(None), |slot| slot.holder(now));
        if request.ticket.is_some() {
            self.queues.entry(key.clone()).or_default().enter(request, now);
            return Attempt::Queued { holder };
        }
        Attempt::Held { holder }
    }

    /// Raises the lease of a lock if it already belongs to the claim.
    fn confirm(&mut self, claim: &Claim, now: Timestamp) -> bool {
        let slot = self.locks.get_mut(&claim.key);
        let Some(slot) = slot.filter(|slot| slot.expires > now && slot.owner == Some(claim.owner)) else {
            return false;
        };
        slot.expires = slot.expires.max(now.after(claim.ttl));
        true
    }

    fn acquire_all(&mut self, requests: &[AcquireRequest], now: Timestamp) -> AttemptAll {
        for (index, AcquireRequest { claim, .. }) in requests.iter().enumerate() {
            if self.is_free(&claim.key, now) {
                self.move_on(&claim.key, now, Some(claim.owner));
            }
            if let Some(slot) = self.locks.get(&claim.key)
                && slot.expires > now
                && slot.owner != Some(claim.owner)
            {
                return AttemptAll::Held { index, holder: slot.holder(now) };
            }
        }
        // This does not call `acquire`, which would move the queue on once more.
        let take = |request: &AcquireRequest| {
            self.leave_queue(&request.claim.key, request.claim.owner);
            if self.confirm(&request.claim, now) {
                self.draw_again(request, now)
            } else {
                self.grant(request, request.claim.ttl, now)
            }
        };
        AttemptAll::Granted { tokens: requests.iter().map(take).collect() }
    }

    fn requeue(&mut self, release: &Release, request: &AcquireRequest, now: Timestamp) -> Attempt {
        if self.owns(&release.claim, now) {
            self.locks.remove(&release.claim.key);
        }
        self.leave_queue(&release.claim.key, release.claim.owner);
        let key = &request.claim.key;
        if request.ticket.is_some() && !self.owns(&request.claim, now) {
            // The claim enters before the walk: otherwise a walk that finds nobody else would leave
            // it waiting.
            self.queues.entry(key.clone()).or_default().enter(request, now);
        }
        self.acquire(request, now)
    }

    fn free(&mut self, release: &Release, now: Timestamp) -> Freed {
        let key = &release.claim.key;
        self.leave_queue(key, release.claim.owner);
        let freed = if self.owns(&release.claim, now) {
            if !release.keep_for.is_zero() {
                if let Some(slot) = self.locks.get_mut(key) {
                    slot.owner = None;
                    slot.expires = now.after(release.keep_for);
                }
                return Freed::Released;
            }
            self.locks.remove(key);
            Freed::Released
        } else {
            Freed::NotHeld
        };
        if self.is_free(key, now) {
            self.move_on(key, now, None);
        }
        freed
    }

    fn renew(&mut self, claim: &Claim, now: Timestamp) -> Renewal {
        if self.confirm(claim, now) { Renewal::Renewed } else { Renewal::Lost }
    }

    fn is_free(&self, key: &LockKey, now: Timestamp) -> bool {
        self.locks.get(key).is_none_or(|slot| slot.expires <= now)
    }

    fn owns(&self, claim: &Claim, now: Timestamp) -> bool {
        self.locks.get(&claim.key).is_some_and(|slot| slot.expires > now && slot.owner == Some(claim.owner))
    }

    /// Draws a token greater than every earlier one and than the caller's floor.
    fn draw(&mut self, request: &AcquireRequest, now: Timestamp) -> FencingToken {
        let known = request.floor.get() / FencingToken::PER_GRANT;
        self.drawn = (self.drawn + 1).max(millis(now) * SEQUENCE).max(known + 1);
        FencingToken::new(self.drawn * FencingToken::PER_GRANT)
    }

    /// Draws a new token for a lock that the claim already has.
    fn draw_again(&mut self, request: &AcquireRequest, now: Timestamp) -> FencingToken {
        let token = self.draw(request, now);
        if let Some(slot) = self.locks.get_mut(&request.claim.key) {
            slot.token = token;
        }
        token
    }

    fn grant(&mut self, request: &AcquireRequest, ttl: Duration, now: Timestamp) -> FencingToken {
        let token = self.draw(request, now);
        let slot =
            Slot { owner: Some(request.claim.owner), info: request.info.clone(), token, expires: now.after(ttl) };
        self.locks.insert(request.claim.key.clone(), slot);
        self.sweep(now);
        token
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.locks.len() > self.sweep_at.max(1024) {
            self.locks.retain(|_, slot| slot.expires > now);
            self.sweep_at = self.locks.len() * 2;
        }
    }
}

impl Slot {
    fn holder(&self, now: Timestamp) -> Holder {
        Holder {
            info: Some(self.info.clone()),
            owner: self.owner,
            token: Some(self.token),
            since: None,
            ttl_left: Some(self.expires.since(now)),
        }
    }
}

/// How many sequence numbers one millisecond has.
const SEQUENCE: u64 = 1 << 13;

/// How far ahead of the clock a known token may lie, ms.
const HOUR: u64 = 3_600_000;

fn millis(now: Timestamp) -> u64 {
    now.as_nanos() / 1_000_000
}

/// Refuses a floor to which the clock must not be set.
fn check_floor(request: &AcquireRequest, now: Timestamp) -> Result<()> {
    if request.floor.get() / FencingToken::PER_GRANT / SEQUENCE <= millis(now) + HOUR {
        return Ok(());
    }
    let error = LockError::misconfigured(format!(
        "the newest token known, {}, lies more than an hour ahead of the clock of the memory store, so no token can exceed \
         it; find out which resource stored it",
        request.floor,
    ));
    Err(error.with_key(&request.claim.key))
}

impl LockBackend for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::polled().with_queue().in_process()
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.shared.clock.set(clock.clone());
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.state().inboxes.insert(Arc::clone(inbox.id()), inbox.clone());
        let _registered = Registered { store: self, inbox: &inbox };
        inbox.set_open(true);
        pending().await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        check_floor(request, self.now())?;
        Ok(self.command()?.acquire(request, self.now()))
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        requests.iter().try_for_each(|request| check_floor(request, self.now()))?;
        Ok(self.command()?.acquire_all(requests, self.now()))
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt> {
        check_floor(request, self.now())?;
        Ok(self.command()?.requeue(release, request, self.now()))
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        let now = self.now();
        match self.command() {
            Ok(mut state) => one_lane.iter().map(|claim| Ok(state.renew(claim, now))).collect(),
            Err(error) => vec![Err(error); one_lane.len()],
        }
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        Ok(self.command()?.free(release, self.now()))
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        Ok(self.command()?.free(&Release::new(claim.clone()), self.now()))
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let now = self.now();
        Ok(self.command()?.locks.get(key).filter(|slot| slot.expires > now).map(|slot| slot.holder(now)))
    }

    async fn set_blocked(&self, key: &LockKey, blocked: Option<&Blocked>) -> Result<()> {
        drop(self.command()?);
        self.shared.blocked.set(key, blocked, self.now());
        Ok(())
    }

    async fn blocked(&self, key: &LockKey) -> Result<Option<Blocked>> {
        drop(self.command()?);
        Ok(self.shared.blocked.get(key, self.now()))
    }

    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        check_floor(request, self.now())?;
        Ok(self.command()?.vote(request, self.now()))
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        Ok(self.command()?.remember(list, keep_for, self.now()))
    }

    async fn vouch(&self) -> Result<()> {
        self.command()?.vouch();
        Ok(())
    }
}

/// Removes an inbox from the list when its process goes away.
struct Registered<'a> {
    store: &'a MemoryStore,
    inbox: &'a Inbox,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.inbox.set_open(false);
        self.store.state().inboxes.remove(self.inbox.id());
    }
}
