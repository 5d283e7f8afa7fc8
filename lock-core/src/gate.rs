//! The queue inside one process: one claimant per key talks to the store, the others wait here.
//!
//! Whoever has the [`Turn`] of a key may claim it, holds it, and passes the turn on in the end. A
//! turn can carry a payload to the next in the queue: the lock itself, or a claim that already waits
//! in the store. The gate knows nothing of either.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::key::LockKey;
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How many keys can be entered at the same time without meeting.
const SHARDS: usize = 64;

/// What a turn carries, and what becomes of it when the turn is dropped with it.
pub(crate) trait Payload: Send + Sized + 'static {
    /// What whoever waits wants: decides whether a payload fits.
    type Terms: Copy + PartialEq + Send;
    /// What the others of this process may know of whoever has the turn.
    type Holder: Clone + Send;

    /// Finds another use for a payload that nobody took.
    fn abandon(self, turn: Turn<Self>);
}

/// The local queues of one manager, first in first out for each key.
pub(crate) struct Gate<P: Payload> {
    shards: Vec<Mutex<HashSet<ByKey<P>>>>,
}

/// The queue of one key. It is open while somebody has the turn, who needs no look-up to find it.
struct KeyQueue<P: Payload> {
    gate: Arc<Gate<P>>,
    key: LockKey,
    state: Mutex<QueueState<P>>,
}

struct QueueState<P: Payload> {
    waiting: VecDeque<Arc<WaiterSlot<P>>>,
    /// How many slots of the queue were left.
    left: usize,
    /// What was last heard of whoever holds the lock.
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
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Takes the turn if nobody has it. Otherwise tells who holds the lock.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &LockKey) -> Result<Turn<P>, Option<P::Holder>> {
        let mut queues = self.shard(key);
        match queues.get(key) {
            Some(ByKey(queue)) => Err(queue.state().holder.clone()),
            None => Ok(self.open(&mut queues, key)),
        }
    }

    /// Takes the turn, or a slot in the queue for it.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, terms: P::Terms) -> Result<Turn<P>, Waiter<P>> {
        let mut queues = self.shard(key);
        let Some(ByKey(queue)) = queues.get(key) else { return Ok(self.open(&mut queues, key)) };
        let slot = Arc::new(WaiterSlot { terms, state: Mutex::new(WaiterState::Waiting(None)) });
        queue.state().waiting.push_back(Arc::clone(&slot));
        Err(Waiter { queue: Arc::clone(queue), slot })
    }

    /// Wakes everybody who waits, to look what has become of the manager.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            let queues = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut open: Vec<&KeyQueue<P>> = queues.iter().map(|ByKey(queue)| &**queue).collect();
            // In a fixed order, so that a run on virtual time can be repeated.
            open.sort_by_key(|queue| queue.key.as_str());
            let wakers: Vec<Waker> = open.into_iter().flat_map(KeyQueue::wakers).collect();
            drop(queues);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns who of this process holds the key.
    pub(crate) fn holder(&self, key: &LockKey) -> Option<P::Holder> {
        self.shard(key).get(key).and_then(|ByKey(queue)| queue.state().holder.clone())
    }

    #[expect(clippy::mutable_key_type, reason = "a door is found by its key, which never changes")]
    fn open(self: &Arc<Self>, queues: &mut HashSet<ByKey<P>>, key: &LockKey) -> Turn<P> {
        let state = QueueState { waiting: VecDeque::new(), left: 0, holder: None };
        let queue = Arc::new(KeyQueue { gate: Arc::clone(self), key: key.clone(), state: Mutex::new(state) });
        queues.insert(ByKey(Arc::clone(&queue)));
        Turn::of(queue)
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashSet<ByKey<P>>> {
        // The end is where keys differ most. Only the spread matters: the set has a hash of its own.
        let text = key.as_str().as_bytes();
        let mix = text.iter().rev().take(8).fold(text.len(), |mix, byte| mix.wrapping_mul(31) + usize::from(*byte));
        self.shards[mix % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Payload> KeyQueue<P> {
    fn state(&self) -> MutexGuard<'_, QueueState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> usize {
        let state = self.state();
        state.waiting.len().saturating_sub(state.left)
    }

    fn wakers(&self) -> Vec<Waker> {
        self.state().waiting.iter().filter_map(|slot| slot.waker()).collect()
    }

    /// Gives a turn to the next in the queue, if there is one and the payload fits. Returns whom to wake.
    fn call_next(&self, mut turn: Turn<P>, fits: impl Fn(P::Terms) -> bool) -> Result<Option<Waker>, Turn<P>> {
        let mut state = self.state();
        while let Some(slot) = state.waiting.front() {
            let called = slot.call(turn, &fits);
            if let Err(Uncalled::Unfit(back)) = called {
                return Err(back);
            }
            state.waiting.pop_front();
            match called {
                Ok(waker) => return Ok(waker),
                Err(Uncalled::Left(back) | Uncalled::Unfit(back)) => turn = back,
            }
            state.left = state.left.saturating_sub(1);
        }
        Err(turn)
    }

    /// Calls the next in the queue, or closes the queue.
    fn pass_on(self: &Arc<Self>) {
        let called = self.call_next(Turn::of(Arc::clone(self)), |_| true).or_else(|turn| {
            // Nobody waits: the queue closes, unless somebody has entered in this very moment.
            let mut queues = self.gate.shard(&self.key);
            self.call_next(turn, |_| true).map_err(|mut turn| {
                turn.passed = true;
                queues.remove(&self.key)
            })
        });
        if let Ok(waker) = called {
            wake(waker);
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<P: Payload> fmt::Debug for Gate<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The right of one caller of this process to claim the key. Passed on when dropped.
pub(crate) struct Turn<P: Payload> {
    queue: Arc<KeyQueue<P>>,
    payload: Option<P>,
    /// Whether it was passed on already.
    passed: bool,
}

impl<P: Payload> Turn<P> {
    fn of(queue: Arc<KeyQueue<P>>) -> Self {
        Self { queue, payload: None, passed: false }
    }

    /// Names who holds the key, for those who wait behind it.
    pub(crate) fn set_holder(&self, holder: P::Holder) {
        self.queue.state().holder = Some(holder);
    }

    /// Returns how many wait for the turn.
    pub(crate) fn waiters(&self) -> usize {
        self.queue.waiters()
    }

    /// Takes what came along.
    pub(crate) fn take_payload(&mut self) -> Option<P> {
        self.payload.take()
    }

    /// Gives the turn and a payload to the next in the queue. Gives both back if there is nobody, or
    /// if the payload does not fit.
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
        if self.passed {
            return;
        }
        match self.payload.take() {
            Some(payload) => payload.abandon(Self::of(Arc::clone(&self.queue))),
            None => self.queue.pass_on(),
        }
    }
}

impl<P: Payload> fmt::Debug for Turn<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.queue.key)
    }
}

/// A place in the queue of one key. Awaiting it gives the turn; dropping it leaves the queue.
pub(crate) struct Waiter<P: Payload> {
    queue: Arc<KeyQueue<P>>,
    slot: Arc<WaiterSlot<P>>,
}

impl<P: Payload> Waiter<P> {
    /// Returns what is known of whoever holds the lock.
    pub(crate) fn holder(&self) -> Option<P::Holder> {
        self.queue.state().holder.clone()
    }
}

struct WaiterSlot<P: Payload> {
    terms: P::Terms,
    state: Mutex<WaiterState<P>>,
}

enum WaiterState<P: Payload> {
    Waiting(Option<Waker>),
    /// The turn is here, and not yet taken.
    Called(Turn<P>),
    /// The turn was taken, or the slot was left.
    Left,
}

/// The turn that a slot was not given.
enum Uncalled<P: Payload> {
    /// The slot was left.
    Left(Turn<P>),
    /// Its payload is not what is waited for.
    Unfit(Turn<P>),
}

impl<P: Payload> WaiterSlot<P> {
    /// Gives the turn to this slot and returns whom to wake, if it waits and the payload fits.
    fn call(&self, turn: Turn<P>, fits: impl Fn(P::Terms) -> bool) -> Result<Option<Waker>, Uncalled<P>> {
        let mut state = self.state();
        let WaiterState::Waiting(waker) = &mut *state else { return Err(Uncalled::Left(turn)) };
        if !fits(self.terms) {
            return Err(Uncalled::Unfit(turn));
        }
        let waker = waker.take();
        *state = WaiterState::Called(turn);
        Ok(waker)
    }

    fn waker(&self) -> Option<Waker> {
        match &*self.state() {
            WaiterState::Waiting(waker) => waker.clone(),
            WaiterState::Called(_) | WaiterState::Left => None,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.state(), WaiterState::Waiting(_))
    }

    fn state(&self) -> MutexGuard<'_, WaiterState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Payload> Future for Waiter<P> {
    type Output = Turn<P>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<P>> {
        let mut state = self.slot.state();
        match std::mem::replace(&mut *state, WaiterState::Left) {
            WaiterState::Waiting(_) => {
                *state = WaiterState::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            WaiterState::Called(turn) => Poll::Ready(turn),
            WaiterState::Left => Poll::Pending,
        }
    }
}

impl<P: Payload> Drop for Waiter<P> {
    fn drop(&mut self) {
        if matches!(*self.slot.state(), WaiterState::Left) {
            return;
        }
        // Before the slot, so that whoever calls the next counts it as waiting or not, but not both.
        let mut queue = self.queue.state();
        let before = std::mem::replace(&mut *self.slot.state(), WaiterState::Left);
        match before {
            // It came and nobody took it: dropping it passes it on.
            WaiterState::Called(turn) => {
                drop(queue);
                drop(turn);
            }
            WaiterState::Waiting(_) => {
                queue.left += 1;
                // Swept in bulk: ten thousand waiters that time out together cost no square.
                if queue.left * 2 > queue.waiting.len() {
                    queue.waiting.retain(|slot| slot.is_waiting());
                    queue.left = 0;
                }
            }
            WaiterState::Left => {}
        }
    }
}

impl<P: Payload> fmt::Debug for Waiter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({})", self.queue.key)
    }
}

// With their paths, since `tests/interleavings/` builds this file too.
#[cfg(test)]
#[path = "gate/random.rs"]
mod random;
#[cfg(test)]
#[path = "gate/tests.rs"]
mod tests;
#[cfg(test)]
#[path = "gate/threads.rs"]
mod threads;
