//! The in-process store. It is always compiled, and is the executable specification of every other store.

mod blocked;
mod done;
#[cfg(feature = "test-util")]
mod faults;
mod inspect;
mod job;
mod member;
mod named;
mod phase;
mod queue;
mod store;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::memory::member::Membership;
use crate::memory::phase::Phase;
use crate::memory::queue::{Queue, Walked};
use lock_store::contract::backend::{
    AcquireRequest, Attempt, AttemptAll, Claim, Freed, Inbox, JobVersion, Release, Renewal,
};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::{Holder, HolderInfo, OwnerId};
use lock_store::types::system::clock::{Clock, Timestamp, since_epoch};
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// Locks in the memory of this process, for tests and for programs that run alone.
///
/// Clones share the locks. The managers of two clones exclude each other like two processes that share a Redis server.
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
    /// The locks that are shared. They are not in `locks`.
    phases: HashMap<LockKey, Phase>,
    queues: HashMap<LockKey, Queue>,
    /// The records of jobs.
    jobs: HashMap<LockKey, job::Remembered>,
    /// The marks of finished versions.
    done: HashMap<LockKey, HashMap<JobVersion, done::Marked>>,
    /// The processes that can receive grants.
    inboxes: HashMap<Arc<str>, Inbox>,
    /// The clock from which tokens are drawn: milliseconds, then 13 bits of sequence. One clock serves all keys. It
    /// also rises for each single key, and forgotten keys cost no memory.
    drawn: u64,
    /// The number of entries at which expired ones are removed.
    sweep_at: usize,
    membership: Membership,
}

#[derive(Debug)]
struct Slot {
    /// `None` while a released lock is kept taken for its `min_hold`.
    owner: Option<OwnerId>,
    info: HolderInfo,
    token: FencingToken,
    granted: Timestamp,
    /// The lease that its holder took.
    ttl: Duration,
    expires: Timestamp,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails the next commands, like a store that is briefly unreachable. The failed commands are not executed.
    ///
    /// An acquire that may wait retries, so it can use up several of these failures.
    #[cfg(feature = "test-util")]
    pub fn fail_next(&self, count: u32) {
        self.shared.faults.fail_next(count);
    }

    /// Makes the store unreachable, or reachable again. Its locks stay, and end when their leases do.
    #[cfg(feature = "test-util")]
    pub fn set_away(&self, away: bool) {
        self.shared.faults.set_away(away);
    }

    /// Deletes a key like a foreign client, without asking who owns it.
    #[cfg(feature = "test-util")]
    pub fn steal(&self, key: &LockKey) {
        let mut state = self.state();
        state.locks.remove(key);
        state.phases.remove(key);
    }

    /// Loses all data, like a server that restarts with an empty memory. The next tokens may be smaller than earlier
    /// ones.
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
        let taken = state.locks.values().filter(|slot| slot.expires > now).count();
        taken + state.phases.values().filter(|phase| phase.is_live(now)).count() + state.queues.len()
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

    /// Returns the state, for one command of a manager.
    #[cfg_attr(not(feature = "test-util"), expect(clippy::unnecessary_wraps, reason = "only tests make it fail"))]
    fn command(&self) -> Result<MutexGuard<'_, State>> {
        #[cfg(feature = "test-util")]
        self.shared.faults.check()?;
        Ok(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

impl State {
    fn acquire(&mut self, request: &AcquireRequest, now: Timestamp) -> Attempt {
        let freed = self.take_out(&request.claim.key, now);
        self.acquire_after(request, freed, now)
    }

    /// Acquires a lock whose expired leases have been removed. `freed` says whether the queue must move on even if this
    /// claim has to wait.
    fn acquire_after(&mut self, request: &AcquireRequest, freed: bool, now: Timestamp) -> Attempt {
        let Claim { key, owner, ttl, mode, .. } = &request.claim;
        if self.confirm(&request.claim, now) {
            self.leave_queue(key, *owner);
            return Attempt::Granted { token: self.draw_again(request, now), lease: None };
        }
        if let Some(token) = self.confirm_shared(&request.claim, now) {
            if freed {
                self.move_on(key, now, None);
            }
            return Attempt::Shared { token, wanted: self.is_wanted(key) };
        }
        if self.fits(key, *mode, now) {
            let walked = self.move_on(key, now, Some(*owner));
            if walked != Walked::Blocked && self.fits(key, *mode, now) {
                if self.leave_queue(key, *owner) {
                    self.wake_watcher(key);
                }
                if !mode.is_shared() {
                    return Attempt::Granted { token: self.grant(request, *ttl, now), lease: None };
                }
                let token = self.join(request, *ttl, now);
                // The claims behind it may fit too. The batch must not end with the claim that asked.
                self.move_on(key, now, None);
                return Attempt::Shared { token, wanted: self.is_wanted(key) };
            }
        } else if freed {
            self.move_on(key, now, None);
        }
        let holder = self.holder(key, now).unwrap_or_else(Holder::unseen);
        if request.ticket.is_some() {
            if !self.is_wanted(key) {
                self.tell_wanted(key);
            }
            let left = self.first_end(key, now);
            let pause = self.queues.entry(key.clone()).or_default().enter(request, left, now);
            return pause.map_or(Attempt::Queued { holder: holder.clone() }, |pause| Attempt::Asleep { holder, pause });
        }
        Attempt::Held { holder }
    }

    /// Returns whether a claim waits.
    fn is_wanted(&self, key: &LockKey) -> bool {
        self.queues.contains_key(key)
    }

    fn holder(&self, key: &LockKey, now: Timestamp) -> Option<Holder> {
        let alone = self.locks.get(key).filter(|slot| slot.expires > now).map(|slot| slot.holder(now));
        alone.or_else(|| self.phase_holder(key, now))
    }

    /// Extends the lease of a lock if the claim already has it.
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
            if self.phase_holder(&claim.key, now).is_none() {
                self.take_out(&claim.key, now);
            }
            if self.is_free(&claim.key, now) {
                self.move_on(&claim.key, now, Some(claim.owner));
            }
            if let Some(holder) = self.phase_holder(&claim.key, now) {
                return AttemptAll::Held { index, holder };
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
        let key = &request.claim.key;
        self.take_out(key, now);
        if self.owns(&release.claim, now) {
            self.locks.remove(&release.claim.key);
        }
        self.free_shared(&Release::new(release.claim.clone()), now);
        self.leave_queue(&release.claim.key, release.claim.owner);
        if request.ticket.is_some() && self.is_wanted(key) && !self.holds(&request.claim, now) {
            // The claim enters the queue before the walk. Otherwise a walk through an empty queue would leave it
            // waiting although the lock is free.
            self.queues.entry(key.clone()).or_default().enter(request, None, now);
        }
        self.acquire_after(request, true, now)
    }

    fn free(&mut self, release: &Release, now: Timestamp) -> Freed {
        let key = &release.claim.key;
        self.take_out(key, now);
        let waited = self.leave_queue(key, release.claim.owner);
        let freed = if self.owns(&release.claim, now) {
            self.note_run(release, now);
            if !release.keep_for.is_zero() {
                if let Some(slot) = self.locks.get_mut(key) {
                    slot.owner = None;
                    slot.expires = now.after(release.keep_for);
                }
                // The lock now becomes free at another time. Waiters that wait for the end of the lease do not know
                // that time.
                self.wake_watcher(key);
                return Freed::Released;
            }
            self.locks.remove(key);
            Freed::Released
        } else {
            self.free_shared(release, now)
        };
        if self.locks.get(key).is_none_or(|slot| slot.expires <= now) {
            self.move_on(key, now, None);
        }
        if waited || !release.keep_for.is_zero() {
            self.wake_watcher(key);
        }
        freed
    }

    fn renew(&mut self, claim: &Claim, now: Timestamp) -> Renewal {
        if self.confirm(claim, now) {
            return Renewal::Renewed;
        }
        if claim.mode.is_shared() { self.renew_shared(claim, now) } else { Renewal::Lost }
    }

    fn is_free(&self, key: &LockKey, now: Timestamp) -> bool {
        self.fits(key, Mode::Exclusive, now)
    }

    /// Returns whether the claim has the lock, alone or together with others.
    fn holds(&mut self, claim: &Claim, now: Timestamp) -> bool {
        self.owns(claim, now) || self.confirm_shared(claim, now).is_some()
    }

    fn owns(&self, claim: &Claim, now: Timestamp) -> bool {
        self.locks.get(&claim.key).is_some_and(|slot| slot.expires > now && slot.owner == Some(claim.owner))
    }

    /// Draws a token greater than every earlier one and than the caller's floor.
    fn draw(&mut self, request: &AcquireRequest, now: Timestamp) -> FencingToken {
        let known = request.floor.get() / FencingToken::PER_GRANT;
        self.drawn = (self.drawn + 1).max(since_epoch(now) * SEQUENCE).max(known + 1);
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
        let info = request.info.clone();
        let (owner, ttl_taken, expires) = (Some(request.claim.owner), request.claim.ttl, now.after(ttl));
        let slot = Slot { owner, info, token, granted: now, ttl: ttl_taken, expires };
        self.locks.insert(request.claim.key.clone(), slot);
        self.sweep(now);
        token
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.locks.len() + self.phases.len() > self.sweep_at.max(1024) {
            self.locks.retain(|_, slot| slot.expires > now);
            self.phases.retain(|_, phase| phase.is_live(now));
            self.sweep_at = (self.locks.len() + self.phases.len()) * 2;
        }
    }
}

impl Slot {
    fn holder(&self, now: Timestamp) -> Holder {
        described(&self.info, self.owner, self.token, self.expires.since(now))
    }
}

/// Describes a holder, or one that has gone and whose lock is kept.
fn described(info: &HolderInfo, owner: Option<OwnerId>, token: FencingToken, left: Duration) -> Holder {
    let mut holder = Holder::foreign(Some(left));
    (holder.info, holder.owner, holder.token) = (Some(info.clone()), owner, Some(token));
    if owner.is_some() { holder } else { holder.kept() }
}

/// How many sequence numbers one millisecond has.
const SEQUENCE: u64 = 1 << 13;

/// How far ahead of the clock a known token may be, in milliseconds.
const HOUR: u64 = 3_600_000;

/// Refuses a floor that would move the clock too far ahead.
fn check_floor(request: &AcquireRequest, now: Timestamp) -> Result<()> {
    if request.floor.get() / FencingToken::PER_GRANT / SEQUENCE <= since_epoch(now) + HOUR {
        return Ok(());
    }
    let error = LockError::misconfigured(format!(
        "the newest token known, {}, lies more than an hour ahead of the clock of the memory store, so no token can exceed \
         it; find out which resource stored it",
        request.floor,
    ));
    Err(error.with_key(&request.claim.key))
}
