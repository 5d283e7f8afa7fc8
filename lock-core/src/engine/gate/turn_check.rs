//! Takes turns back from waiters that were called and not polled, and wakes waiters that set no alarm yet.
//!
//! In a busy queue a check is always scheduled, and nearly every waiter is called before the check runs. Such a waiter
//! sets no alarm. It relies on the check, which wakes it once: then it sets its alarm.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::waiter::WaiterSlot;
use super::{KeyQueue, Payload, QueueState, wake};

impl<P: Payload> QueueState<P> {
    /// Notes that a waiter was called. Returns a check of it if none is scheduled.
    pub(super) fn note_called(&mut self, queue: &Arc<KeyQueue<P>>, slot: Arc<WaiterSlot<P>>) -> Option<TurnCheck<P>> {
        self.calls += 1;
        if queue.demand.is_none() {
            // An exclusive lock has one turn, so any waiter that was called earlier has taken it and left.
            self.called.clear();
        }
        self.called.push((self.calls, slot));
        let check = (!self.check_scheduled).then(|| TurnCheck { queue: Arc::downgrade(queue), calls: self.calls });
        self.check_scheduled = true;
        check
    }

    /// Returns the wakers of the waiters that rely on a check and were not woken by one. Also returns whether one of
    /// them was never polled. It relies on the next check.
    fn relying(&mut self) -> (Vec<Waker>, bool) {
        let mut wakers = Vec::new();
        let first = self.waiting.partition_point(|slot| slot.number <= self.woken);
        for slot in self.waiting.range(first..).filter(|slot| slot.relies) {
            if slot.is_unpolled() {
                return (wakers, true);
            }
            wakers.extend(slot.waker());
            self.woken = slot.number;
        }
        (wakers, false)
    }
}

impl<P: Payload> KeyQueue<P> {
    /// Returns the wakers of all waiters.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.state().waiting.iter().filter_map(|slot| slot.waker()).collect()
    }
}

/// A check of the called waiters: have they taken their turns?
pub(crate) struct TurnCheck<P: Payload> {
    queue: Weak<KeyQueue<P>>,
    /// How many waiters had been called when the check was scheduled.
    calls: u64,
}

impl<P: Payload> TurnCheck<P> {
    /// Takes the turn back from each waiter that is still called, and gives it to the next waiter.
    pub(crate) fn run(self) {
        let Some(queue) = self.queue.upgrade() else { return };
        let mut state = queue.state();
        state.called.retain(|(_, slot)| slot.is_called());
        let (wakers, is_relied_on) = state.relying();
        // The check ends here, so that an idle queue costs no timer. The next call schedules a new one.
        if state.called.is_empty() && !is_relied_on {
            state.check_scheduled = false;
            drop(state);
            wake(wakers);
            return;
        }
        // A waiter that was called after this check was scheduled has until the next one: each has a whole slice.
        let late = |(call, slot): &(u64, Arc<WaiterSlot<P>>)| (*call <= self.calls).then(|| Arc::clone(slot));
        let late: Vec<_> = state.called.iter().filter_map(late).collect();
        drop(state);
        wake(wakers);
        for slot in late {
            // The waiter may have taken its turn since. Then there is none to take back.
            if let Some(mut turn) = slot.take_back() {
                match turn.payload.take() {
                    Some(payload) => payload.take_back(turn),
                    None => drop(turn),
                }
            }
        }
        let calls = queue.state().calls;
        (queue.gate.schedule)(Self { queue: Weak::clone(&self.queue), calls });
    }
}

impl<P: Payload> fmt::Debug for TurnCheck<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnCheck").field("calls", &self.calls).finish_non_exhaustive()
    }
}
