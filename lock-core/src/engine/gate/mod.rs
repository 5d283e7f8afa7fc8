//! The queue inside one process. For each key, one caller talks to the store and the other callers wait here.
//!
//! The caller with the [`Turn`] of a key may claim the key, holds it, and finally passes the turn on. A turn can carry
//! a payload to the next waiter: the lock itself, or a claim that is already in the store's queue. The gate does not
//! know what the payload means.
//!
//! A waiter is called, and takes its turn when it is polled. A future may never be polled again, for example if a
//! `select!` took another branch. The gate takes the turn back from such a waiter and passes over it until it is
//! polled. Without this rule, one forgotten future would block its key for the whole process.
//!
//! Locks are taken in this order: the shard, then the queue of a key, then a waiter's slot or a group.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::{Arc, LazyLock, Weak};
use std::task::Waker;

use foldhash::fast::RandomState;

use crate::sync::{Mutex, MutexGuard};
use lock_store::types::key::LockKey;

// These paths are relative because `tests/interleavings/` builds these files in a crate of its own.
mod group;
mod turn_check;
mod waiter;

use group::Group;
pub(crate) use group::{Demand, Leaving, Membership};
pub(crate) use turn_check::TurnCheck;
pub(crate) use waiter::Waiter;
use waiter::{Uncalled, WaiterSlot};

/// The number of shards. Keys in different shards can be entered at the same time.
const SHARDS: usize = 64;

/// A payload that a turn carries to the next waiter. The trait also says what happens to the payload if that waiter
/// does not take it.
pub(crate) trait Payload: Send + Sized + 'static {
    /// The terms that a waiter asks for. They decide whether a payload fits the waiter.
    type Terms: Copy + PartialEq + Send;
    /// A hint to the other callers of this process about the caller with the turn.
    type Holder: Clone + Send + Unpin;
    /// A thing that several callers can hold at the same time.
    type Shared: Clone + Send + Sync;

    /// Returns whether one more caller may hold this too.
    fn admits(shared: &Self::Shared) -> bool;

    /// Ends what no caller holds any more, after a caller that was let in never came.
    fn end(shared: Self::Shared, turn: Option<Turn<Self>>);

    /// Finds another use for a payload whose waiter has left.
    fn reclaim(self, turn: Turn<Self>);

    /// Finds another use for a payload whose waiter is not polled. The waiters behind it may not be polled either.
    fn take_back(self, turn: Turn<Self>) {
        self.reclaim(turn);
    }
}

/// The local queues of one manager. Each key is served first in, first out.
pub(crate) struct Gate<P: Payload> {
    shards: Vec<Mutex<Shard<P>>>,
    /// Runs each [`TurnCheck`] later, when the waiter's time to take its turn has passed.
    schedule: Box<dyn Fn(TurnCheck<P>) + Send + Sync>,
}

struct Shard<P: Payload> {
    /// The keys that a caller of this process claims or holds.
    open: HashSet<ByKey<P>, RandomState>,
    /// How many waiters have entered. The count at its entry is a waiter's number, and its place in the queue.
    entered: u64,
}

/// The queue of one key. It is open while a caller has the turn, and the turn refers to it directly.
struct KeyQueue<P: Payload> {
    gate: Arc<Gate<P>>,
    key: LockKey,
    /// The common request of all callers in the queue, if the lock is shared. Boxed because most locks are exclusive.
    demand: Option<Box<Demand<P::Terms>>>,
    /// Whether the gate can find this queue by its key. The queue of a turn outside of it is not listed.
    listed: bool,
    state: Mutex<QueueState<P>>,
}

struct QueueState<P: Payload> {
    /// Sorted by the waiters' numbers.
    waiting: VecDeque<Arc<WaiterSlot<P>>>,
    /// How many of these slots were left by their callers. They are removed later, in bulk.
    left: usize,
    /// How many times a waiter was called.
    calls: u64,
    /// The waiters that were called and may not have taken their turns yet, each with the number of its call. Only a
    /// shared lock has more than one.
    called: Vec<(u64, Arc<WaiterSlot<P>>)>,
    /// Whether a [`TurnCheck`] of these waiters is scheduled. At most one is.
    check_scheduled: bool,
    /// A check has woken all waiters up to this number that rely on one.
    woken: u64,
    /// How many turns are in use: at most one if the lock is exclusive.
    turns: usize,
    /// How many of these turns wait in the store for a lock that other claims hold.
    blocked: usize,
    /// The group that callers join instead of waiting. It dangles if no group is open.
    open_group: Weak<Group<P>>,
    /// The newest hint about the holder of the lock.
    holder: Option<P::Holder>,
}

/// An open queue, found by its key.
struct ByKey<P: Payload>(Arc<KeyQueue<P>>);

impl<P: Payload> Borrow<LockKey> for ByKey<P> {
    fn borrow(&self) -> &LockKey {
        &self.0.key
    }
}

impl<P: Payload> Hash for ByKey<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl<P: Payload> PartialEq for ByKey<P> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl<P: Payload> Eq for ByKey<P> {}

impl<P: Payload> Gate<P> {
    /// Makes a gate. `schedule` must run each [`TurnCheck`] once, after the time that a waiter has to take its turn.
    pub(crate) fn new(schedule: impl Fn(TurnCheck<P>) + Send + Sync + 'static) -> Self {
        let shard = |_| Mutex::new(Shard { open: HashSet::default(), entered: 0 });
        Self { shards: (0..SHARDS).map(shard).collect(), schedule: Box::new(schedule) }
    }

    /// Takes the turn if it is free. Otherwise returns what is known about the holder of the lock.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &LockKey) -> Result<Turn<P>, Option<P::Holder>> {
        let mut shard = self.shard(key);
        match shard.open.get(key) {
            Some(ByKey(queue)) => Err(queue.state().holder.clone()),
            None => Ok(self.open_for(&mut shard, key, None)),
        }
    }

    /// Takes the turn, or a place in the queue for it.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, terms: P::Terms) -> Result<Turn<P>, Waiter<P>> {
        let mut shard = self.shard(key);
        let Some(ByKey(queue)) = shard.open.get(key) else { return Ok(self.open_for(&mut shard, key, None)) };
        let queue = Arc::clone(queue);
        Err(Self::wait(&mut shard, queue, terms))
    }

    /// Takes the last place of a queue.
    fn wait(shard: &mut Shard<P>, queue: Arc<KeyQueue<P>>, terms: P::Terms) -> Waiter<P> {
        shard.entered += 1;
        let (slot, found) = {
            let mut state = queue.state();
            let slot = WaiterSlot::waiting(shard.entered, terms, None, state.check_scheduled);
            state.waiting.push_back(Arc::clone(&slot));
            (slot, state.holder.clone())
        };
        Waiter::new(queue, slot, found)
    }

    /// Takes the turn, or returns to the place in the queue that the slot's number stands for.
    fn enter_again(
        self: &Arc<Self>,
        before: &KeyQueue<P>,
        slot: &Arc<WaiterSlot<P>>,
    ) -> Result<Turn<P>, Arc<KeyQueue<P>>> {
        let (key, demand) = (&before.key, before.demand.as_deref().copied());
        let mut shard = self.shard(key);
        let Some(ByKey(queue)) = shard.open.get(key) else { return Ok(self.open_for(&mut shard, key, demand)) };
        if !queue.is_for(demand) {
            return Ok(self.turn_outside(key));
        }
        let mut state = queue.state();
        if let Some(turn) = state.let_in(queue) {
            return Ok(turn);
        }
        let place = state.waiting.partition_point(|other| other.number < slot.number);
        state.waiting.insert(place, Arc::clone(slot));
        Err(Arc::clone(queue))
    }

    /// Wakes all waiters, so that they check whether the manager was shut down.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            let shard = shard.lock();
            let mut open: Vec<&KeyQueue<P>> = shard.open.iter().map(|ByKey(queue)| &**queue).collect();
            // In a fixed order, so that a run on virtual time can be repeated.
            open.sort_by_key(|queue| queue.key.as_str());
            let wakers: Vec<Waker> = open.into_iter().flat_map(KeyQueue::wakers).collect();
            drop(shard);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns whether a caller of this process claims or holds the key.
    pub(crate) fn is_open(&self, key: &LockKey) -> bool {
        self.shard(key).open.contains(key)
    }

    /// Returns which caller of this process holds the key.
    pub(crate) fn holder(&self, key: &LockKey) -> Option<P::Holder> {
        self.shard(key).open.get(key).and_then(|ByKey(queue)| queue.state().holder.clone())
    }

    fn open_for(self: &Arc<Self>, shard: &mut Shard<P>, key: &LockKey, demand: Option<Demand<P::Terms>>) -> Turn<P> {
        let queue = KeyQueue::new(self, key, demand, true);
        shard.open.insert(ByKey(Arc::clone(&queue)));
        Turn::of(queue)
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, Shard<P>> {
        /// Its seed differs from the seeds of the sets. With the same seed, the keys of a shard would share the bits by
        /// which its set places them, and would collide there.
        static BY_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        let place = BY_KEY.hash_one(key) % SHARDS as u64;
        self.shards[usize::try_from(place).unwrap_or(0)].lock()
    }
}

impl<P: Payload> KeyQueue<P> {
    fn new(gate: &Arc<Gate<P>>, key: &LockKey, demand: Option<Demand<P::Terms>>, listed: bool) -> Arc<Self> {
        let state = QueueState {
            waiting: VecDeque::new(),
            left: 0,
            calls: 0,
            called: Vec::new(),
            check_scheduled: false,
            woken: 0,
            turns: 1,
            blocked: 0,
            open_group: Weak::new(),
            holder: None,
        };
        Arc::new(Self {
            gate: Arc::clone(gate),
            key: key.clone(),
            demand: demand.map(Box::new),
            listed,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, QueueState<P>> {
        self.state.lock()
    }

    fn waiters(&self) -> usize {
        let state = self.state();
        state.waiting.len().saturating_sub(state.left)
    }

    /// Gives a turn to the next waiter, if there is one and the payload fits. Returns the waker of that waiter.
    fn call_next(
        self: &Arc<Self>,
        mut turn: Turn<P>,
        fits: impl Fn(P::Terms) -> bool,
    ) -> Result<Option<Waker>, Turn<P>> {
        let mut state = self.state();
        while let Some(slot) = state.waiting.front() {
            let called = slot.call(turn, &fits);
            if let Err(Uncalled::Unfit(back)) = called {
                return Err(back);
            }
            let slot = state.waiting.pop_front();
            match called {
                Ok(waker) => {
                    let check = slot.and_then(|slot| state.note_called(self, slot));
                    drop(state);
                    if let Some(check) = check {
                        // Scheduled after the queue is unlocked, because the scheduler takes locks of its own.
                        (self.gate.schedule)(check);
                    }
                    return Ok(waker);
                }
                Err(Uncalled::Left(back) | Uncalled::Unfit(back)) => turn = back,
            }
            state.left = state.left.saturating_sub(1);
        }
        Err(turn)
    }

    /// Calls the next waiter, or closes the queue.
    fn pass_on(self: &Arc<Self>) {
        if self.end_surplus() {
            return;
        }
        let called = self.call_next(Turn::of(Arc::clone(self)), |_| true).or_else(|turn| {
            // No caller waits, so the queue closes. Look again with the shard locked, because a caller may have entered
            // since: without this second look it would wait in a queue that is no longer listed, and nobody would call
            // it.
            let mut shard = self.gate.shard(&self.key);
            self.call_next(turn, |_| true).map_err(|mut turn| {
                turn.passed = true;
                self.close(&mut shard);
            })
        });
        if let Ok(waker) = called {
            wake(waker);
        }
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl<P: Payload> fmt::Debug for Gate<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The right of one caller of this process to claim the key. It is passed on when it is dropped.
pub(crate) struct Turn<P: Payload> {
    queue: Arc<KeyQueue<P>>,
    payload: Option<P>,
    /// A membership in a group. A turn that has one is nothing else, and is not passed on.
    membership: Option<Membership<P>>,
    /// Whether it was passed on already.
    passed: bool,
    /// Whether its caller waits in the store for a lock that other claims hold. Only turns of shared locks set it.
    blocked: bool,
}

impl<P: Payload> Turn<P> {
    fn of(queue: Arc<KeyQueue<P>>) -> Self {
        Self { queue, payload: None, membership: None, passed: false, blocked: false }
    }

    /// Tells the waiters who holds the key, or clears the hint about the holder.
    pub(crate) fn set_holder(&self, holder: impl Into<Option<P::Holder>>) {
        self.queue.state().holder = holder.into();
    }

    /// Returns how many callers wait for the turn.
    pub(crate) fn waiters(&self) -> usize {
        self.queue.waiters()
    }

    /// Takes the membership in a group, if this turn is one.
    pub(crate) fn take_membership(&mut self) -> Option<Membership<P>> {
        self.membership.take()
    }

    /// Takes the payload that came with the turn.
    pub(crate) fn take_payload(&mut self) -> Option<P> {
        self.payload.take()
    }

    /// Gives the turn and a payload to the next waiter. Returns both if no caller waits or the payload does not fit.
    pub(crate) fn hand_on(mut self, payload: P, fits: impl Fn(P::Terms) -> bool) -> Result<(), (Self, P)> {
        self.payload = Some(payload);
        let queue = Arc::clone(&self.queue);
        queue.call_next(self, fits).map(wake).map_err(|mut turn| match turn.payload.take() {
            Some(payload) => (turn, payload),
            None => unreachable!("it was loaded above"),
        })
    }
}

impl<P: Payload> Drop for Turn<P> {
    fn drop(&mut self) {
        self.set_blocked(false);
        if self.passed {
            return;
        }
        match self.payload.take() {
            Some(payload) => payload.reclaim(Self::of(Arc::clone(&self.queue))),
            None => self.queue.pass_on(),
        }
    }
}

impl<P: Payload> fmt::Debug for Turn<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.queue.key)
    }
}

#[cfg(test)]
#[path = "tests/random.rs"]
mod random;
#[cfg(test)]
mod tests;
