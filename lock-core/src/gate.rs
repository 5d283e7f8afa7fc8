//! The queue inside one process: one claimant per key talks to the store, the others wait here.
//!
//! Whoever has the [`Turn`] of a key may claim it, holds it, and passes the turn on in the end. A
//! turn can carry a cargo to the next in the queue: the lock itself, or a claim that already waits
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
    shards: Vec<Mutex<HashSet<Door<C>>>>,
}

/// The queue of one key. It is open while somebody has the turn, who needs no look-up to find it.
struct Room<C: Cargo> {
    gate: Arc<Gate<C>>,
    key: LockKey,
    state: Mutex<RoomState<C>>,
}

struct RoomState<C: Cargo> {
    queue: VecDeque<Arc<Seat<C>>>,
    /// How many seats of the queue were left.
    left: usize,
    /// What was last heard of whoever holds the lock.
    holder: Option<C::Holder>,
}

/// An open room, found by its key.
struct Door<C: Cargo>(Arc<Room<C>>);

impl<C: Cargo> Borrow<LockKey> for Door<C> {
    fn borrow(&self) -> &LockKey {
        &self.0.key
    }
}

impl<C: Cargo> Hash for Door<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl<C: Cargo> PartialEq for Door<C> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl<C: Cargo> Eq for Door<C> {}

impl<C: Cargo> Gate<C> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Takes the turn if nobody has it. Otherwise tells who holds the lock.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &LockKey) -> Result<Turn<C>, Option<C::Holder>> {
        let mut doors = self.shard(key);
        match doors.get(key) {
            Some(Door(room)) => Err(room.state().holder.clone()),
            None => Ok(self.open(&mut doors, key)),
        }
    }

    /// Takes the turn, or a seat in the queue for it.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, terms: C::Terms) -> Result<Turn<C>, Seated<C>> {
        let mut doors = self.shard(key);
        let Some(Door(room)) = doors.get(key) else { return Ok(self.open(&mut doors, key)) };
        let seat = Arc::new(Seat { terms, state: Mutex::new(SeatState::Waiting(None)) });
        room.state().queue.push_back(Arc::clone(&seat));
        Err(Seated { room: Arc::clone(room), seat })
    }

    /// Wakes everybody who waits, to look what has become of the manager.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            let doors = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rooms: Vec<&Room<C>> = doors.iter().map(|Door(room)| &**room).collect();
            // In a fixed order, so that a run on virtual time can be repeated.
            rooms.sort_by_key(|room| room.key.as_str());
            let wakers: Vec<Waker> = rooms.into_iter().flat_map(Room::wakers).collect();
            drop(doors);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns who of this process holds the key.
    pub(crate) fn holder(&self, key: &LockKey) -> Option<C::Holder> {
        self.shard(key).get(key).and_then(|Door(room)| room.state().holder.clone())
    }

    #[expect(clippy::mutable_key_type, reason = "a door is found by its key, which never changes")]
    fn open(self: &Arc<Self>, doors: &mut HashSet<Door<C>>, key: &LockKey) -> Turn<C> {
        let state = RoomState { queue: VecDeque::new(), left: 0, holder: None };
        let room = Arc::new(Room { gate: Arc::clone(self), key: key.clone(), state: Mutex::new(state) });
        doors.insert(Door(Arc::clone(&room)));
        Turn::of(room)
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashSet<Door<C>>> {
        // The end is where keys differ most. Only the spread matters: the set has a hash of its own.
        let text = key.as_str().as_bytes();
        let mix = text.iter().rev().take(8).fold(text.len(), |mix, byte| mix.wrapping_mul(31) + usize::from(*byte));
        self.shards[mix % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Cargo> Room<C> {
    fn state(&self) -> MutexGuard<'_, RoomState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> usize {
        let state = self.state();
        state.queue.len().saturating_sub(state.left)
    }

    fn wakers(&self) -> Vec<Waker> {
        self.state().queue.iter().filter_map(|seat| seat.waker()).collect()
    }

    /// Gives a turn to the next in the queue, if there is one and the cargo fits. Returns whom to wake.
    fn call_next(&self, mut turn: Turn<C>, fits: impl Fn(C::Terms) -> bool) -> Result<Option<Waker>, Turn<C>> {
        let mut state = self.state();
        while let Some(seat) = state.queue.front() {
            let called = seat.call(turn, &fits);
            if let Err(Uncalled::Unfit(back)) = called {
                return Err(back);
            }
            state.queue.pop_front();
            match called {
                Ok(waker) => return Ok(waker),
                Err(Uncalled::Left(back) | Uncalled::Unfit(back)) => turn = back,
            }
            state.left = state.left.saturating_sub(1);
        }
        Err(turn)
    }

    /// Calls the next in the queue, or closes the room.
    fn pass_on(self: &Arc<Self>) {
        let called = self.call_next(Turn::of(Arc::clone(self)), |_| true).or_else(|turn| {
            // Nobody waits: the room closes, unless somebody has entered in this very moment.
            let mut doors = self.gate.shard(&self.key);
            self.call_next(turn, |_| true).map_err(|mut turn| {
                turn.passed = true;
                doors.remove(&self.key)
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

impl<C: Cargo> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The right of one caller of this process to claim the key. Passed on when dropped.
pub(crate) struct Turn<C: Cargo> {
    room: Arc<Room<C>>,
    cargo: Option<C>,
    /// Whether it was passed on already.
    passed: bool,
}

impl<C: Cargo> Turn<C> {
    fn of(room: Arc<Room<C>>) -> Self {
        Self { room, cargo: None, passed: false }
    }

    /// Names who holds the key, for those who wait behind it.
    pub(crate) fn set_holder(&self, holder: C::Holder) {
        self.room.state().holder = Some(holder);
    }

    /// Returns how many wait for the turn.
    pub(crate) fn waiters(&self) -> usize {
        self.room.waiters()
    }

    /// Takes what came along.
    pub(crate) fn unload(&mut self) -> Option<C> {
        self.cargo.take()
    }

    /// Gives the turn and a cargo to the next in the queue. Gives both back if there is nobody, or
    /// if the cargo does not fit.
    pub(crate) fn hand_on(mut self, cargo: C, fits: impl Fn(C::Terms) -> bool) -> Result<(), (Self, C)> {
        self.cargo = Some(cargo);
        let room = Arc::clone(&self.room);
        room.call_next(self, fits).map(wake).map_err(|mut turn| match turn.cargo.take() {
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
            Some(cargo) => cargo.abandon(Self::of(Arc::clone(&self.room))),
            None => self.room.pass_on(),
        }
    }
}

impl<C: Cargo> fmt::Debug for Turn<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.room.key)
    }
}

/// A place in the queue of one key. Awaiting it gives the turn; dropping it leaves the queue.
pub(crate) struct Seated<C: Cargo> {
    room: Arc<Room<C>>,
    seat: Arc<Seat<C>>,
}

impl<C: Cargo> Seated<C> {
    /// Returns what is known of whoever holds the lock.
    pub(crate) fn holder(&self) -> Option<C::Holder> {
        self.room.state().holder.clone()
    }
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

/// The turn that a seat was not given.
enum Uncalled<C: Cargo> {
    /// The seat was left.
    Left(Turn<C>),
    /// Its cargo is not what is waited for.
    Unfit(Turn<C>),
}

impl<C: Cargo> Seat<C> {
    /// Gives the turn to this seat and returns whom to wake, if it waits and the cargo fits.
    fn call(&self, turn: Turn<C>, fits: impl Fn(C::Terms) -> bool) -> Result<Option<Waker>, Uncalled<C>> {
        let mut state = self.state();
        let SeatState::Waiting(waker) = &mut *state else { return Err(Uncalled::Left(turn)) };
        if !fits(self.terms) {
            return Err(Uncalled::Unfit(turn));
        }
        let waker = waker.take();
        *state = SeatState::Called(turn);
        Ok(waker)
    }

    fn waker(&self) -> Option<Waker> {
        match &*self.state() {
            SeatState::Waiting(waker) => waker.clone(),
            SeatState::Called(_) | SeatState::Left => None,
        }
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
        if matches!(*self.seat.state(), SeatState::Left) {
            return;
        }
        // Before the seat, so that whoever calls the next counts it as waiting or not, but not both.
        let mut room = self.room.state();
        let before = std::mem::replace(&mut *self.seat.state(), SeatState::Left);
        match before {
            // It came and nobody took it: dropping it passes it on.
            SeatState::Called(turn) => {
                drop(room);
                drop(turn);
            }
            SeatState::Waiting(_) => {
                room.left += 1;
                // Swept in bulk: ten thousand waiters that time out together cost no square.
                if room.left * 2 > room.queue.len() {
                    room.queue.retain(|seat| seat.is_waiting());
                    room.left = 0;
                }
            }
            SeatState::Left => {}
        }
    }
}

impl<C: Cargo> fmt::Debug for Seated<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seated({})", self.room.key)
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
