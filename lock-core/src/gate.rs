//! The queue inside one process: one claimant per key talks to the store, the others wait here.
//!
//! Whoever has the [`Turn`] of a key may claim it, holds it, and passes the turn on in the end. A
//! turn can carry a cargo to the next in the queue: the lock itself, or a claim that already waits
//! in the store. The gate knows nothing of either.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::key::LockKey;

/// How many keys can be entered at the same time without meeting.
const SHARDS: usize = 64;

/// What a turn carries, and what becomes of it when the turn is dropped with it.
pub(crate) trait Cargo: Send + Sized + 'static {
    /// What whoever waits wants: decides whether a cargo fits.
    type Terms: Copy + PartialEq + Send;
    /// What the others of this process may know of whoever has the turn.
    type Holder: Clone + Send;

    /// Finds another use for a cargo that nobody took.
    fn abandon(self, turn: Turn<Self>);
}

/// The local queues of one manager, first in first out for each key.
pub(crate) struct Gate<C: Cargo> {
    shards: Vec<Mutex<HashMap<LockKey, Room<C>>>>,
    hasher: RandomState,
}

/// The queue of one key. It exists while somebody has the turn.
struct Room<C: Cargo> {
    queue: VecDeque<Arc<Seat<C>>>,
    /// How many seats of the queue were left.
    left: usize,
    /// What was last heard of whoever holds the lock.
    holder: Option<C::Holder>,
}

impl<C: Cargo> Gate<C> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Takes the turn if nobody has it. Otherwise tells who holds the lock.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &LockKey) -> Result<Turn<C>, Option<C::Holder>> {
        let mut rooms = self.shard(key);
        if let Some(room) = rooms.get(key) {
            return Err(room.holder.clone());
        }
        rooms.insert(key.clone(), Room::empty());
        Ok(Turn { gate: Arc::clone(self), key: key.clone(), cargo: None, passed: false })
    }

    /// Takes the turn, or a seat in the queue for it.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, terms: C::Terms) -> Result<Turn<C>, Seated<C>> {
        let mut rooms = self.shard(key);
        if let Some(room) = rooms.get_mut(key) {
            let seat = Arc::new(Seat { terms, state: Mutex::new(SeatState::Waiting(None)) });
            room.queue.push_back(Arc::clone(&seat));
            return Err(Seated { gate: Arc::clone(self), key: key.clone(), seat });
        }
        rooms.insert(key.clone(), Room::empty());
        Ok(Turn { gate: Arc::clone(self), key: key.clone(), cargo: None, passed: false })
    }

    /// Returns who of this process holds the key.
    pub(crate) fn holder(&self, key: &LockKey) -> Option<C::Holder> {
        self.shard(key).get(key).and_then(|room| room.holder.clone())
    }

    /// Names who holds the key, for those who wait behind it.
    pub(crate) fn set_holder(&self, key: &LockKey, holder: C::Holder) {
        if let Some(room) = self.shard(key).get_mut(key) {
            room.holder = Some(holder);
        }
    }

    /// Returns how many wait for the turn.
    pub(crate) fn waiters(&self, key: &LockKey) -> usize {
        self.shard(key).get(key).map_or(0, |room| room.queue.len().saturating_sub(room.left))
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashMap<LockKey, Room<C>>> {
        let index = usize::try_from(self.hasher.hash_one(key)).unwrap_or(usize::MAX) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the next in the queue, or closes the room.
    fn pass_on(self: &Arc<Self>, key: &LockKey) {
        let mut rooms = self.shard(key);
        let Some(room) = rooms.get_mut(key) else { return };
        while let Some(seat) = room.queue.pop_front() {
            let turn = Turn { gate: Arc::clone(self), key: key.clone(), cargo: None, passed: false };
            match seat.call(turn) {
                Ok(waker) => {
                    drop(rooms);
                    wake(waker);
                    return;
                }
                Err(mut turn) => turn.passed = true,
            }
            room.left = room.left.saturating_sub(1);
        }
        rooms.remove(key);
    }

    /// Gives a loaded turn to the next in the queue, if there is one and the cargo fits.
    fn hand_on(self: &Arc<Self>, mut turn: Turn<C>, fits: impl Fn(C::Terms) -> bool) -> Result<(), Turn<C>> {
        let mut rooms = self.shard(&turn.key);
        let Some(room) = rooms.get_mut(&turn.key) else {
            drop(rooms);
            return Err(turn);
        };
        while let Some(seat) = room.queue.pop_front() {
            if !seat.is_waiting() {
                room.left = room.left.saturating_sub(1);
                continue;
            }
            if !fits(seat.terms) {
                room.queue.push_front(seat);
                break;
            }
            match seat.call(turn) {
                Ok(waker) => {
                    drop(rooms);
                    wake(waker);
                    return Ok(());
                }
                // Left in this very moment.
                Err(back) => {
                    turn = back;
                    room.left = room.left.saturating_sub(1);
                }
            }
        }
        drop(rooms);
        Err(turn)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<C: Cargo> Room<C> {
    fn empty() -> Self {
        Self { queue: VecDeque::new(), left: 0, holder: None }
    }
}

impl<C: Cargo> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The right of one caller of this process to claim the key. Passed on when dropped.
pub(crate) struct Turn<C: Cargo> {
    gate: Arc<Gate<C>>,
    key: LockKey,
    cargo: Option<C>,
    /// Whether it was passed on already.
    passed: bool,
}

impl<C: Cargo> Turn<C> {
    /// Takes what came along.
    pub(crate) fn unload(&mut self) -> Option<C> {
        self.cargo.take()
    }

    /// Gives the turn and a cargo to the next in the queue. Gives both back if there is nobody, or
    /// if the cargo does not fit.
    pub(crate) fn hand_on(mut self, cargo: C, fits: impl Fn(C::Terms) -> bool) -> Result<(), (Self, C)> {
        self.cargo = Some(cargo);
        let gate = Arc::clone(&self.gate);
        gate.hand_on(self, fits).map_err(|mut turn| match turn.cargo.take() {
            Some(cargo) => (turn, cargo),
            None => unreachable!("it was loaded above"),
        })
    }
}

impl<C: Cargo> Drop for Turn<C> {
    fn drop(&mut self) {
        if self.passed {
            return;
        }
        match self.cargo.take() {
            Some(cargo) => {
                let turn = Self { gate: Arc::clone(&self.gate), key: self.key.clone(), cargo: None, passed: false };
                cargo.abandon(turn);
            }
            None => self.gate.pass_on(&self.key),
        }
    }
}

impl<C: Cargo> fmt::Debug for Turn<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.key)
    }
}

/// A place in the queue of one key. Awaiting it gives the turn; dropping it leaves the queue.
pub(crate) struct Seated<C: Cargo> {
    gate: Arc<Gate<C>>,
    key: LockKey,
    seat: Arc<Seat<C>>,
}

struct Seat<C: Cargo> {
    terms: C::Terms,
    state: Mutex<SeatState<C>>,
}

enum SeatState<C: Cargo> {
    Waiting(Option<Waker>),
    /// The turn is here, and not yet taken.
    Called(Turn<C>),
    /// The turn was taken, or the seat was left.
    Left,
}

impl<C: Cargo> Seat<C> {
    /// Gives the turn to this seat and returns whom to wake, unless it was left.
    fn call(&self, turn: Turn<C>) -> Result<Option<Waker>, Turn<C>> {
        let mut state = self.state();
        let SeatState::Waiting(waker) = &mut *state else { return Err(turn) };
        let waker = waker.take();
        *state = SeatState::Called(turn);
        Ok(waker)
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.state(), SeatState::Waiting(_))
    }

    fn state(&self) -> MutexGuard<'_, SeatState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Cargo> Future for Seated<C> {
    type Output = Turn<C>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<C>> {
        let mut state = self.seat.state();
        match std::mem::replace(&mut *state, SeatState::Left) {
            SeatState::Waiting(_) => {
                *state = SeatState::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            SeatState::Called(turn) => Poll::Ready(turn),
            SeatState::Left => Poll::Pending,
        }
    }
}

impl<C: Cargo> Drop for Seated<C> {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.seat.state(), SeatState::Left);
        match before {
            // It came and nobody took it: dropping it passes it on.
            SeatState::Called(turn) => drop(turn),
            SeatState::Waiting(_) => {
                let mut rooms = self.gate.shard(&self.key);
                if let Some(room) = rooms.get_mut(&self.key) {
                    room.left += 1;
                    // Swept in bulk: ten thousand waiters that time out together cost no square.
                    if room.left * 2 > room.queue.len() {
                        room.queue.retain(|seat| seat.is_waiting());
                        room.left = 0;
                    }
                }
            }
            SeatState::Left => {}
        }
    }
}

impl<C: Cargo> fmt::Debug for Seated<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seated({})", self.key)
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
