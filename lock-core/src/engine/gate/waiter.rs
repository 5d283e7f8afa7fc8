//! One caller that waits for its turn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{KeyQueue, Payload, Turn};
use crate::sync::{Mutex, MutexGuard};

/// A place in the queue of one key. Awaiting it returns the turn. Dropping it leaves the queue.
pub(crate) struct Waiter<P: Payload> {
    queue: Arc<KeyQueue<P>>,
    pub(super) slot: Arc<WaiterSlot<P>>,
    /// The holder of the lock when this waiter came.
    found: Option<P::Holder>,
    /// Whether the turn was taken.
    is_over: bool,
    /// Whether a check will wake this waiter, so that it needs no alarm before that.
    relies: bool,
}

impl<P: Payload> Waiter<P> {
    pub(super) fn new(queue: Arc<KeyQueue<P>>, slot: Arc<WaiterSlot<P>>, found: Option<P::Holder>) -> Self {
        let relies = slot.relies;
        Self { queue, slot, found, is_over: false, relies }
    }

    /// Returns whether a check will wake this waiter within the time for a turn. Its alarm can be set then. Only the
    /// first call returns it.
    pub(crate) fn take_relies(&mut self) -> bool {
        std::mem::take(&mut self.relies)
    }

    /// Returns what was known about the holder when this waiter came. Only the first call returns it.
    pub(crate) fn take_found(&mut self) -> Option<P::Holder> {
        self.found.take()
    }

    /// Returns what is known about the holder of the lock.
    #[inline]
    pub(crate) fn holder(&self) -> Option<P::Holder> {
        self.queue.state().holder.clone()
    }
}

/// The state that a waiter and its queue share.
pub(super) struct WaiterSlot<P: Payload> {
    /// Its place in the queue.
    pub(super) number: u64,
    /// Whether a [`TurnCheck`](super::TurnCheck) was scheduled when it came. The check wakes it once.
    pub(super) relies: bool,
    terms: P::Terms,
    state: Mutex<WaiterState<P>>,
}

enum WaiterState<P: Payload> {
    Waiting(Option<Waker>),
    /// The turn is here and was not taken yet.
    Called(Turn<P>),
    /// The turn was not taken in time and was taken back. The slot is not in any queue.
    PassedOver,
    /// The turn was taken, or the caller left.
    Left,
}

/// A turn that a slot did not accept.
pub(super) enum Uncalled<P: Payload> {
    /// The caller has left the slot.
    Left(Turn<P>),
    /// The payload does not fit what the waiter asks for.
    Unfit(Turn<P>),
}

impl<P: Payload> WaiterSlot<P> {
    pub(super) fn waiting(number: u64, terms: P::Terms, waker: Option<Waker>, relies: bool) -> Arc<Self> {
        Arc::new(Self { number, relies, terms, state: Mutex::new(WaiterState::Waiting(waker)) })
    }

    /// Gives the turn to this slot if it waits and the payload fits. Returns the waker of its caller.
    #[inline]
    pub(super) fn call(&self, turn: Turn<P>, fits: impl Fn(P::Terms) -> bool) -> Result<Option<Waker>, Uncalled<P>> {
        let mut state = self.state();
        let WaiterState::Waiting(waker) = &mut *state else { return Err(Uncalled::Left(turn)) };
        if !fits(self.terms) {
            return Err(Uncalled::Unfit(turn));
        }
        let waker = waker.take();
        *state = WaiterState::Called(turn);
        Ok(waker)
    }

    pub(super) fn waker(&self) -> Option<Waker> {
        match &*self.state() {
            WaiterState::Waiting(waker) => waker.clone(),
            WaiterState::Called(_) | WaiterState::PassedOver | WaiterState::Left => None,
        }
    }

    /// Takes the turn back if it was not taken yet. The slot is then passed over.
    pub(super) fn take_back(&self) -> Option<Turn<P>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, WaiterState::PassedOver) {
            WaiterState::Called(turn) => Some(turn),
            other => {
                *state = other;
                None
            }
        }
    }

    pub(super) fn is_called(&self) -> bool {
        matches!(*self.state(), WaiterState::Called(_))
    }

    /// Returns whether it waits and was never polled.
    pub(super) fn is_unpolled(&self) -> bool {
        matches!(*self.state(), WaiterState::Waiting(None))
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.state(), WaiterState::Waiting(_))
    }

    fn state(&self) -> MutexGuard<'_, WaiterState<P>> {
        self.state.lock()
    }
}

impl<P: Payload> Future for Waiter<P> {
    type Output = Turn<P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<P>> {
        let mut state = self.slot.state();
        match std::mem::replace(&mut *state, WaiterState::Left) {
            WaiterState::Waiting(_) => {
                *state = WaiterState::Waiting(Some(cx.waker().clone()));
                return Poll::Pending;
            }
            WaiterState::Called(turn) => {
                drop(state);
                self.is_over = true;
                return Poll::Ready(turn);
            }
            WaiterState::Left => return Poll::Pending,
            WaiterState::PassedOver => drop(state),
        }
        // A new slot is needed, because the queue may still check the old one. The new slot keeps the number, so the
        // waiter does not lose its place.
        let slot = WaiterSlot::waiting(self.slot.number, self.slot.terms, Some(cx.waker().clone()), false);
        self.relies = false;
        match self.queue.gate.enter_again(&self.queue, &slot) {
            Ok(turn) => {
                self.is_over = true;
                Poll::Ready(turn)
            }
            Err(queue) => {
                (self.queue, self.slot) = (queue, slot);
                Poll::Pending
            }
        }
    }
}

impl<P: Payload> Drop for Waiter<P> {
    fn drop(&mut self) {
        if self.is_over || matches!(*self.slot.state(), WaiterState::PassedOver) {
            return;
        }
        // The queue is locked before the slot. The next call therefore counts the slot either as waiting or as left,
        // never as both.
        let mut queue = self.queue.state();
        let before = std::mem::replace(&mut *self.slot.state(), WaiterState::Left);
        match before {
            // The turn came and was not taken. Dropping it passes it on, and that locks the queue, so the queue is
            // unlocked first.
            WaiterState::Called(turn) => {
                drop(queue);
                drop(turn);
            }
            WaiterState::Waiting(_) => {
                queue.left += 1;
                // Slots are removed in bulk. Otherwise ten thousand waiters that time out together would take quadratic
                // time.
                if queue.left * 2 > queue.waiting.len() {
                    queue.waiting.retain(|slot| slot.is_waiting());
                    queue.left = 0;
                }
            }
            WaiterState::PassedOver | WaiterState::Left => {}
        }
    }
}

impl<P: Payload> fmt::Debug for Waiter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({})", self.queue.key)
    }
}
