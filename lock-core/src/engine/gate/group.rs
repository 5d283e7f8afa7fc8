//! Locks that several callers of this process hold at the same time, each by its own claim or all by one claim.
//!
//! The readers of a key share one claim. The first reader has the turn and makes the claim. When the claim is granted,
//! a *group* opens. All waiting callers join it, and later callers join it too, without a command to the store. When
//! its payload admits no more callers, the group closes to newcomers. The open group keeps the turn. When the group
//! closes, the turn goes to the next caller, which makes a claim of its own. Members of a closed group keep the lock
//! until they leave.

use std::sync::{Arc, Weak};

use super::{ByKey, Gate, KeyQueue, Payload, QueueState, Shard, Turn, Waiter, wake};
use crate::sync::{Mutex, MutexGuard};
use lock_store::types::key::LockKey;

/// The request that all callers in one queue for a shared lock have in common. Each queue has one demand: readers wait
/// with readers, and permits wait with permits of the same terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<T> {
    pub(crate) terms: T,
    /// How many claims of this process fit at the same time.
    pub(crate) turns: usize,
}

impl<T> Demand<T> {
    /// How many of these claims may wait in the store's queue at the same time. With only one, the process gets at most
    /// one grant per round trip. On a slow machine the store's queue would then run empty, and freed permits would go
    /// to any process that asks at that moment.
    fn places(&self) -> usize {
        (self.turns / 4).max(4)
    }
}

/// A lock that several callers of this process hold together.
pub(super) struct Group<P: Payload> {
    shared: P::Shared,
    state: Mutex<State<P>>,
}

struct State<P: Payload> {
    /// How many members the group has, including called waiters that have not come yet. At zero the group has ended,
    /// and no caller may join it.
    holders: usize,
    /// The turn of the caller that opened the group. It is here exactly while the group is open to newcomers. Two
    /// callers of this process therefore never make a claim for the same readers.
    turn: Option<Turn<P>>,
}

impl<P: Payload> Group<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }

    /// Lets one more caller in, unless the last member has just left.
    fn join(self: &Arc<Self>) -> Option<Membership<P>> {
        let mut state = self.state();
        let open = state.holders > 0 && state.turn.is_some();
        state.holders += usize::from(open);
        open.then(|| Membership(Some(Arc::clone(self))))
    }
}

/// The effect on the other members when one caller leaves.
pub(crate) enum Leaving<P: Payload> {
    /// Other members still hold the lock.
    ToOthers,
    /// No member is left. The turn is returned if the group was still open.
    Last(Option<Turn<P>>),
}

/// The share of one caller in a lock that several callers hold.
pub(crate) struct Membership<P: Payload>(Option<Arc<Group<P>>>);

impl<P: Payload> Membership<P> {
    /// Makes the caller with the turn the first member of a group, and lets in all waiting callers.
    pub(crate) fn open(turn: Turn<P>, shared: P::Shared) -> Self {
        let queue = Arc::clone(&turn.queue);
        let state = Mutex::new(State { holders: 1, turn: Some(turn) });
        let group = Arc::new(Group { shared, state });
        let mut wakers = Vec::new();
        let mut checks = Vec::new();
        // Turns of waiters that have left. They are dropped after the queue is unlocked: a membership that ends with
        // them may retire the lease, and that locks the queue.
        let mut gone = Vec::new();
        let mut state = queue.state();
        state.open_group = Arc::downgrade(&group);
        while let Some(slot) = state.waiting.pop_front() {
            let Some(membership) = group.join() else { break };
            match slot.call(Turn::of_member(Arc::clone(&queue), membership), |_| true) {
                Ok(waker) => {
                    wakers.extend(waker);
                    checks.extend(state.note_called(&queue, slot));
                }
                Err(left) => gone.push(left),
            }
        }
        // The queue is empty now: no caller can close the group while the queue is locked, so no waiter was refused above.
        state.left = 0;
        drop(state);
        checks.into_iter().for_each(|check| (queue.gate.schedule)(check));
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
        Self(Some(group))
    }

    /// Leaves the group.
    pub(crate) fn leave(mut self) -> Leaving<P> {
        self.0.take().map_or(Leaving::ToOthers, |group| leave(&group))
    }

    pub(crate) fn shared(&self) -> Option<&P::Shared> {
        self.0.as_ref().map(|group| &group.shared)
    }
}

fn leave<P: Payload>(group: &Group<P>) -> Leaving<P> {
    let mut state = group.state();
    state.holders -= 1;
    if state.holders > 0 { Leaving::ToOthers } else { Leaving::Last(state.turn.take()) }
}

impl<P: Payload> Drop for Membership<P> {
    fn drop(&mut self) {
        if let Some(group) = self.0.take()
            && let Leaving::Last(turn) = leave(&group)
        {
            P::end(group.shared.clone(), turn);
        }
    }
}

impl<P: Payload> std::fmt::Debug for Membership<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Membership")
    }
}

impl<P: Payload> Gate<P> {
    /// Takes a turn at a shared lock, a membership in its group, or a place in the queue.
    ///
    /// A queue is for callers with the same demand. A caller with another demand gets a turn outside of the queue. A
    /// caller that does not wait also gets one. The store decides about both.
    pub(crate) fn enter_shared(
        self: &Arc<Self>,
        key: &LockKey,
        demand: Demand<P::Terms>,
        waits: bool,
    ) -> Result<Turn<P>, Waiter<P>> {
        let mut shard = self.shard(key);
        let Some(ByKey(queue)) = shard.open.get(key) else { return Ok(self.open_for(&mut shard, key, Some(demand))) };
        let queue = Arc::clone(queue);
        if !queue.is_for(Some(demand)) {
            return Ok(self.turn_outside(key));
        }
        let mut state = queue.state();
        if let Some(turn) = state.let_in(&queue) {
            return Ok(turn);
        }
        drop(state);
        if waits { Err(Self::wait(&mut shard, queue, demand.terms)) } else { Ok(self.turn_outside(key)) }
    }

    /// Makes a turn that no other caller waits for.
    pub(crate) fn turn_outside(self: &Arc<Self>, key: &LockKey) -> Turn<P> {
        Turn::of(KeyQueue::new(self, key, None, false))
    }
}

impl<P: Payload> KeyQueue<P> {
    /// Returns whether callers with this demand wait here.
    pub(super) fn is_for(&self, demand: Option<Demand<P::Terms>>) -> bool {
        self.demand.as_ref().map(|own| own.terms) == demand.map(|demand| demand.terms)
    }

    /// Ends a turn if enough other turns wait in the store. When those turns get the lock, they call the waiters that
    /// are next in this process.
    pub(super) fn end_surplus(&self) -> bool {
        let mut state = self.state();
        let surplus = self.demand.as_ref().is_some_and(|demand| !state.one_more_may_wait(demand, state.blocked));
        state.turns -= usize::from(surplus);
        surplus
    }

    /// Ends a turn that no caller waits for. Closes the queue when it was the last turn.
    pub(super) fn close(&self, shard: &mut Shard<P>) {
        if self.demand.is_some() {
            let mut state = self.state();
            state.turns -= 1;
            if state.turns > 0 {
                return;
            }
        }
        if self.listed {
            shard.open.remove(&self.key);
        }
    }
}

impl<P: Payload> QueueState<P> {
    /// Lets one more caller in if a group is open or one more turn fits. If other callers wait, they came first, and
    /// this caller waits behind them.
    pub(super) fn let_in(&mut self, queue: &Arc<KeyQueue<P>>) -> Option<Turn<P>> {
        let demand = queue.demand.as_ref()?;
        if self.waiting.len() > self.left {
            return None;
        }
        if let Some(group) = self.open_group.upgrade() {
            if P::admits(&group.shared) {
                return group.join().map(|membership| Turn::of_member(Arc::clone(queue), membership));
            }
            // The group closes. Its turn goes to this caller, which makes a claim of its own.
            self.open_group = Weak::new();
            let turn = group.state().turn.take();
            return turn;
        }
        let fits = self.one_more_fits(demand);
        self.turns += usize::from(fits);
        fits.then(|| Turn::of(Arc::clone(queue)))
    }

    /// Returns whether one more turn fits. While enough turns wait in the store, a further turn would only wait there
    /// too. Such a caller waits here instead, and receives the lock when this process gets it.
    fn one_more_fits(&self, demand: &Demand<P::Terms>) -> bool {
        self.turns < demand.turns && self.one_more_may_wait(demand, self.blocked)
    }

    /// Returns whether one more turn may wait in the store, besides `beside` others. The first may always wait. More
    /// may wait only while each turn that has the lock has a waiter here, which can take the lock over.
    fn one_more_may_wait(&self, demand: &Demand<P::Terms>, beside: usize) -> bool {
        let (holding, waiting_here) = (self.turns - self.blocked, self.waiting.len().saturating_sub(self.left));
        beside == 0 || beside < demand.places() && waiting_here > holding
    }
}

impl<P: Payload> Turn<P> {
    /// Returns whether enough other turns already wait for the lock. The callers that wait here come after those turns.
    pub(crate) fn has_enough_blocked(&self) -> bool {
        let Some(demand) = &self.queue.demand else { return false };
        let state = self.queue.state();
        !state.one_more_may_wait(demand, state.blocked - usize::from(self.blocked))
    }

    /// Notes whether the caller waits in the store for the lock. Calls one more waiter if one more turn may wait there.
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let Some(demand) = self.queue.demand.as_ref().filter(|_| self.blocked != blocked) else { return };
        self.blocked = blocked;
        let mut state = self.queue.state();
        if blocked {
            state.blocked += 1;
        } else {
            state.blocked -= 1;
        }
        let calls = state.waiting.len() > state.left && state.one_more_fits(demand);
        state.turns += usize::from(calls);
        drop(state);
        if calls {
            drop(Self::of(Arc::clone(&self.queue)));
        }
    }

    /// Makes a turn that is only a membership in a group.
    fn of_member(queue: Arc<KeyQueue<P>>, membership: Membership<P>) -> Self {
        Self { queue, payload: None, membership: Some(membership), passed: true, blocked: false }
    }
}
