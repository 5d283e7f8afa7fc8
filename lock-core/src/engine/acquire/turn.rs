//! The place of a caller among the callers of this process: while it waits, and while it holds.

use std::pin::pin;
use std::sync::Arc;

use crate::engine::acquire::Acquire;
use crate::engine::acquire::waiting::beside;
use crate::engine::claim::{Handoff, HolderHint, LocalPlace, PendingClaim, SharedLease};
use crate::engine::gate::{Demand, Membership, Turn, Waiter};
use crate::engine::lease::{Lease, Terms};
use crate::engine::shared::Interrupted;
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::mode::Mode;
use lock_store::types::options::{LockOptions, Wait};
use lock_store::types::system::clock::Timestamp;

/// The point from which an acquire starts at the store, when it has the turn.
pub(super) enum Start {
    /// A new claim, whose first request also releases this lease, if there is one.
    Fresh(Option<Arc<Lease>>),
    Pending(Box<PendingClaim>),
}

impl Start {
    pub(super) fn after(lease: Arc<Lease>) -> Self {
        lease.arrive();
        Self::Fresh(Some(lease))
    }
}

impl Acquire {
    /// Waits until no other caller of this process is ahead. Also returns whether it had to wait, and the time of the turn.
    pub(super) async fn take_turn(&mut self) -> Result<(Turn<Handoff>, bool, Timestamp)> {
        let started = self.started;
        let key = &self.spec.events.key;
        if let Mode::Shared { units, limit } = self.spec.events.mode {
            return self.take_shared_turn(units, limit).await;
        }
        if self.spec.options.wait == Wait::None {
            return match self.handle.gate.try_enter(key) {
                Ok(turn) => Ok((turn, false, started)),
                Err(holder) => {
                    self.holder = holder.and_then(|holder| holder.describe(started));
                    Err(LockError::busy(self.holder.clone()))
                }
            };
        }
        let waiter = match self.handle.gate.enter(key, Terms::of(&self.spec.options, self.spec.events.mode)) {
            Ok(turn) => return Ok((turn, false, started)),
            Err(waiter) => waiter,
        };
        self.wait_for_turn(waiter).await
    }

    /// Does the same for a shared lock: returns a turn to claim it, or a membership in the group that holds it.
    async fn take_shared_turn(&mut self, units: u32, limit: u32) -> Result<(Turn<Handoff>, bool, Timestamp)> {
        let (started, key, mode, options) =
            (self.started, &self.spec.events.key, self.spec.events.mode, &self.spec.options);
        let gate = &self.handle.shared;
        if mode == Mode::READ && !shares_a_claim(options) {
            return Ok((gate.turn_outside(key), false, started));
        }
        // All readers share one claim. Permits are claimed one by one, as many as fit.
        let turns = if mode == Mode::READ { 1 } else { (limit / units) as usize };
        let demand = Demand { terms: Terms::of(options, mode), turns };
        match gate.enter_shared(key, demand, options.wait != Wait::None) {
            Ok(turn) => Ok((turn, false, started)),
            Err(waiter) => self.wait_for_turn(waiter).await,
        }
    }

    async fn wait_for_turn(&mut self, mut waiter: Waiter<Handoff>) -> Result<(Turn<Handoff>, bool, Timestamp)> {
        let started = self.started;
        self.contended(waiter.take_found().and_then(|holder| holder.describe(started)));
        // The waiter is dropped only after the holder was read below: with its last waiter the queue forgets the holder.
        let (mut now, accepted) = (started, self.spec.accepted);
        let turn = loop {
            let at = self.until.min(self.telling.at);
            let called = beside(&mut self.telling, pin!(self.handle.called((now, at), accepted, &mut waiter))).await;
            match called {
                Err(Interrupted::TimedOut) if at < self.until => self.tell(waiter.holder(), None),
                turn => break turn,
            }
            now = at;
        };
        let now = self.engine().clock.now();
        // In the meantime the caller with the turn may have got the lock, seen its holder, or learned why the store grants nothing.
        match waiter.holder() {
            Some(HolderHint::OutOfReach(error)) => (self.holder, self.out_of_reach) = (None, Some(error)),
            hint if turn.is_err() || self.holder.is_none() => {
                self.holder = hint.and_then(|hint| hint.describe(now)).or(self.holder.take());
            }
            _ => {}
        }
        if self.holder.is_some() {
            // The lock is taken, so an earlier error of the store is not the reason.
            self.out_of_reach = None;
        }
        turn.map(|turn| (turn, true, now)).map_err(|why| self.interrupted(why))
    }

    /// Returns the place in this process for the holder of a lease. A reader opens a group for the waiting readers.
    pub(super) fn local_place(&self, turn: Turn<Handoff>, lease: &Arc<Lease>) -> LocalPlace {
        if self.spec.events.mode != Mode::READ || !shares_a_claim(&self.spec.options) {
            return LocalPlace::Turn(turn);
        }
        let shared = SharedLease { engine: Arc::clone(self.engine()), lease: Arc::clone(lease) };
        LocalPlace::Member(Membership::open(turn, shared))
    }
}

/// Returns whether a reader can share a claim with others of this process. Such a reader has no limits of its own.
fn shares_a_claim(options: &LockOptions) -> bool {
    options.handoff && options.renew_interval().is_some() && options.min_hold.is_zero() && options.max_hold.is_none()
}

/// Returns the lease that the members of a group hold, with its token, unless it has ended.
pub(super) fn guest_of(membership: &Membership<Handoff>, now: Timestamp) -> Option<(Arc<Lease>, FencingToken)> {
    let lease = &membership.shared()?.lease;
    lease.next_token(now).map(|token| (Arc::clone(lease), token))
}
