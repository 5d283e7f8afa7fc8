//! Locks that several callers of this process hold at one time: each by a claim of its own, or all by one.
//!
//! The readers of a key share one claim. The first of them has the turn and makes it. When it is granted, a *door* is
//! open: those who wait are let in, and whoever comes joins, without a word to the store. The door shuts when the
//! payload admits nobody any more: then the next to come has the turn, and makes a claim of its own.

use std::sync::{Arc, Weak};

use super::{ByKey, Gate, KeyQueue, Payload, QueueState, Shard, Turn, Waiter, wake};
use crate::types::key::LockKey;
use crate::types::system::sync::{Mutex, MutexGuard};

/// What all callers in one queue for a shared lock want.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<T> {
    pub(crate) terms: T,
    /// How many claims of this process fit at one time.
    pub(crate) turns: usize,
}

/// What several callers of this process hold together.
pub(super) struct Shares<P: Payload> {
    shared: P::Shared,
    state: Mutex<State<P>>,
}

struct State<P: Payload> {
    /// How many hold it, or are about to.
    holders: usize,
    /// While the door is open.
    turn: Option<Turn<P>>,
}

impl<P: Payload> Shares<P> {
    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }

    /// Lets one more in, unless the last has just left.
    fn join(self: &Arc<Self>) -> Option<Share<P>> {
        let mut state = self.state();
        let open = state.holders > 0 && state.turn.is_some();
        state.holders += usize::from(open);
        open.then(|| Share(Some(Arc::clone(self))))
    }
}

/// What one caller's leaving means for the others.
pub(crate) enum Leaving<P: Payload> {
    /// Others still hold it.
    ToOthers,
    /// Nobody does. The turn is there if the door is still open.
    Last(Option<Turn<P>>),
}

/// One caller's part in what several hold.
pub(crate) struct Share<P: Payload>(Option<Arc<Shares<P>>>);

impl<P: Payload> Share<P> {
    /// Opens a door behind a caller that has the turn, and lets in all who wait for it.
    pub(crate) fn open(turn: Turn<P>, shared: P::Shared) -> Self {
        let queue = Arc::clone(&turn.queue);
        let state = Mutex::new(State { holders: 1, turn: Some(turn) });
        let shares = Arc::new(Shares { shared, state });
        let mut wakers = Vec::new();
        let mut looks = Vec::new();
        let mut gone = Vec::new();
        let mut state = queue.state();
        state.door = Arc::downgrade(&shares);
        while let Some(slot) = state.waiting.pop_front() {
            let Some(share) = shares.join() else { break };
            match slot.call(Turn::of_share(Arc::clone(&queue), share), |_| true) {
                Ok(waker) => {
                    wakers.extend(waker);
                    looks.extend(state.watch(&queue, slot));
                }
                Err(left) => gone.push(left),
            }
        }
        state.left = 0;
        drop(state);
        looks.into_iter().for_each(|look| (queue.gate.schedule)(look));
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
        Self(Some(shares))
    }

    /// Leaves.
    pub(crate) fn leave(mut self) -> Leaving<P> {
        self.0.take().map_or(Leaving::ToOthers, |shares| leave(&shares))
    }

    pub(crate) fn shared(&self) -> Option<&P::Shared> {
        self.0.as_ref().map(|shares| &shares.shared)
    }
}

fn leave<P: Payload>(shares: &Shares<P>) -> Leaving<P> {
    let mut state = shares.state();
    state.holders -= 1;
    if state.holders > 0 { Leaving::ToOthers } else { Leaving::Last(state.turn.take()) }
}

impl<P: Payload> Drop for Share<P> {
    fn drop(&mut self) {
        if let Some(shares) = self.0.take()
            && let Leaving::Last(turn) = leave(&shares)
        {
            P::end(shares.shared.clone(), turn);
        }
    }
}

impl<P: Payload> std::fmt::Debug for Share<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Share")
    }
}

impl<P: Payload> Gate<P> {
    /// Takes a turn at a lock that is shared, a part in what others hold, or a place in the queue.
    ///
    /// A queue is for callers that want the same. Whoever wants something else beside them has a turn outside of
    /// it, and so has whoever does not wait: the store decides.
    pub(crate) fn enter_side(
        self: &Arc<Self>,
        key: &LockKey,
        side: Side<P::Terms>,
        waits: bool,
    ) -> Result<Turn<P>, Waiter<P>> {
        let mut shard = self.shard(key);
        let Some(ByKey(queue)) = shard.open.get(key) else { return Ok(self.open_for(&mut shard, key, Some(side))) };
        let queue = Arc::clone(queue);
        if !queue.is_for(Some(side)) {
            return Ok(self.turn_outside(key));
        }
        let mut state = queue.state();
        if let Some(turn) = state.let_in(&queue) {
            return Ok(turn);
        }
        drop(state);
        if waits { Err(Self::wait(&mut shard, queue, side.terms)) } else { Ok(self.turn_outside(key)) }
    }

    /// Gives a turn that nobody else waits for.
    pub(crate) fn turn_outside(self: &Arc<Self>, key: &LockKey) -> Turn<P> {
        Turn::of(KeyQueue::new(self, key, None, false))
    }
}

impl<P: Payload> KeyQueue<P> {
    /// Returns whether a caller of this side waits here.
    pub(super) fn is_for(&self, side: Option<Side<P::Terms>>) -> bool {
        self.side.as_ref().map(|own| own.terms) == side.map(|side| side.terms)
    }

    /// Counts a turn as over if another waits for the lock: that one calls the next.
    pub(super) fn end_surplus(&self) -> bool {
        let mut state = self.state();
        let surplus = state.blocked > 0;
        state.turns -= usize::from(surplus);
        surplus
    }

    /// Counts a turn as over that nobody waits for, and closes the queue with the last of them.
    pub(super) fn close(&self, shard: &mut Shard<P>) {
        if self.side.is_some() {
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
    /// Lets one more in if the door is open, or if one more turn fits, and nobody waits for that.
    pub(super) fn let_in(&mut self, queue: &Arc<KeyQueue<P>>) -> Option<Turn<P>> {
        let side = queue.side.as_ref()?;
        if self.waiting.len() > self.left {
            return None;
        }
        if let Some(shares) = self.door.upgrade() {
            if P::admits(&shares.shared) {
                return shares.join().map(|share| Turn::of_share(Arc::clone(queue), share));
            }
            // The door shuts, and its turn is for a claim of its own.
            self.door = Weak::new();
            let turn = shares.state().turn.take();
            return turn;
        }
        let fits = self.one_more_fits(side);
        self.turns += usize::from(fits);
        fits.then(|| Turn::of(Arc::clone(queue)))
    }

    /// Returns whether one more turn fits. While one waits for others to leave the lock, more of them would too: who
    /// waits here is given what this process has.
    fn one_more_fits(&self, side: &Side<P::Terms>) -> bool {
        self.turns < side.turns && self.blocked == 0
    }
}

impl<P: Payload> Turn<P> {
    /// Returns whether another turn waits for the lock already. Whoever waits here comes after that one.
    pub(crate) fn has_another_blocked(&self) -> bool {
        self.queue.state().blocked > usize::from(self.blocked)
    }

    /// Notes whether the caller waits for a lock that others have. Others may try once it has come in.
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let Some(side) = self.queue.side.as_ref().filter(|_| self.blocked != blocked) else { return };
        self.blocked = blocked;
        let mut state = self.queue.state();
        if blocked {
            state.blocked += 1;
            return;
        }
        state.blocked -= 1;
        let calls = state.waiting.len() > state.left && state.one_more_fits(side);
        state.turns += usize::from(calls);
        drop(state);
        if calls {
            drop(Self::of(Arc::clone(&self.queue)));
        }
    }

    /// A turn that is only a part in what others hold.
    fn of_share(queue: Arc<KeyQueue<P>>, share: Share<P>) -> Self {
        Self { queue, payload: None, share: Some(share), passed: true, blocked: false }
    }
}
