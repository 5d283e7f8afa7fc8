//! The place of a caller among the others of this process: while it waits, and while it holds.

use std::sync::Arc;

use crate::engine::acquire::Acquire;
use crate::engine::claim::{Handoff, HolderHint, LocalPlace, SharedLease};
use crate::engine::gate::{Demand, Membership, Turn, Waiter};
use crate::engine::lease::{Lease, Terms};
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::mode::Mode;
use crate::types::options::{LockOptions, Wait};
use crate::types::system::clock::Timestamp;

impl Acquire {
    /// Waits until no other caller of this process is ahead of us. Also returns whether anybody was, and
    /// when it is.
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

    /// The same for a lock that is shared: a turn to claim it, or a membership in the group of callers that hold it.
    async fn take_shared_turn(&mut self, units: u32, limit: u32) -> Result<(Turn<Handoff>, bool, Timestamp)> {
        let (started, key, mode, options) =
            (self.started, &self.spec.events.key, self.spec.events.mode, &self.spec.options);
        let gate = &self.handle.shared;
        if mode == Mode::READ && !shares_a_claim(options) {
            return Ok((gate.turn_outside(key), false, started));
        }
        // All readers share one claim; permits are claimed one by one, as many as fit.
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
        // The waiter leaves only after the holder was read below: what the queue knows of it goes with the last waiter.
        let turn = self.handle.called(self.until, self.spec.accepted, &mut waiter).await;
        let now = self.engine().clock.now();
        // The caller with the turn may have got the lock meanwhile, or seen who holds it, or why the store grants nothing.
        match waiter.holder() {
            Some(HolderHint::OutOfReach(error)) => (self.holder, self.out_of_reach) = (None, Some(error)),
            hint if turn.is_err() || self.holder.is_none() => {
                self.holder = hint.and_then(|hint| hint.describe(now)).or(self.holder.take());
            }
            _ => {}
        }
        if self.holder.is_some() {
            // It is taken, whatever the store said before.
            self.out_of_reach = None;
        }
        turn.map(|turn| (turn, true, now)).map_err(|why| self.interrupted(why))
    }

    /// Returns the place in this process for the holder of a lease. A reader opens a group for the others that wait.
    pub(super) fn local_place(&self, turn: Turn<Handoff>, lease: &Arc<Lease>) -> LocalPlace {
        if self.spec.events.mode != Mode::READ || !shares_a_claim(&self.spec.options) {
            return LocalPlace::Turn(turn);
        }
        let shared = SharedLease { engine: Arc::clone(self.engine()), lease: Arc::clone(lease) };
        LocalPlace::Member(Membership::open(turn, shared))
    }
}

/// Returns whether a reader can hold a claim together with others of this process: it has no limit of its own.
fn shares_a_claim(options: &LockOptions) -> bool {
    options.handoff && options.renew_interval().is_some() && options.min_hold.is_zero() && options.max_hold.is_none()
}

/// Returns the lease that the members of a group hold, and its token, unless it is over.
pub(super) fn guest_of(membership: &Membership<Handoff>, now: Timestamp) -> Option<(Arc<Lease>, FencingToken)> {
    let lease = &membership.shared()?.lease;
    lease.next_token(now).map(|token| (Arc::clone(lease), token))
}
