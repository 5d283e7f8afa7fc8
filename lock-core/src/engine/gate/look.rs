//! Taking turns back from those who were called and did not come.

use std::fmt;
use std::sync::{Arc, Weak};

use super::waiter::WaiterSlot;
use super::{KeyQueue, Payload, QueueState};

impl<P: Payload> QueueState<P> {
    /// Notes that a waiter was called, and returns a look at it if none is scheduled.
    pub(super) fn watch(&mut self, queue: &Arc<KeyQueue<P>>, slot: Arc<WaiterSlot<P>>) -> Option<Look<P>> {
        self.calls += 1;
        if queue.side.is_none() {
            // There is one turn, so whoever was called before has taken it.
            self.called.clear();
        }
        self.called.push((self.calls, slot));
        let look = (!self.watched).then(|| Look { queue: Arc::downgrade(queue), calls: self.calls });
        self.watched = true;
        look
    }
}

/// A look at those who were called: have they taken the turn?
pub(crate) struct Look<P: Payload> {
    queue: Weak<KeyQueue<P>>,
    /// How many had been called when the look was scheduled.
    calls: u64,
}

impl<P: Payload> Look<P> {
    /// Takes the turn back from those who are still called, and gives it to the next.
    pub(crate) fn run(self) {
        let Some(queue) = self.queue.upgrade() else { return };
        let mut state = queue.state();
        state.called.retain(|(_, slot)| slot.is_called());
        if state.called.is_empty() {
            state.watched = false;
            return;
        }
        // Who was called since the look was scheduled has until the next look.
        let late = |(call, slot): &(u64, Arc<WaiterSlot<P>>)| (*call <= self.calls).then(|| Arc::clone(slot));
        let late: Vec<_> = state.called.iter().filter_map(late).collect();
        drop(state);
        for slot in late {
            // Unless it is taken in this very moment.
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

impl<P: Payload> fmt::Debug for Look<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("calls", &self.calls).finish_non_exhaustive()
    }
}
